"""Ranks that lost each other: a cut network is told from a rank that is gone."""

from pathlib import Path

from slipstream.flight.account import explain
from slipstream.flight.codec import as_json
from slipstream.flight.files import record_path
from slipstream.flight.record import (
    ClockReading,
    FlightRecord,
    RecordedEngine,
    RecordedEvent,
    RecordedPeer,
)

SILENT = "has been silent for 2.1 s; allowed: 2 s (SLIPSTREAM_PEER_TIMEOUT is 5)"
HOSTS = ("a", "a", "b", "b")


def peer(rank: int, *, is_lost: bool) -> RecordedPeer:
    return RecordedPeer(
        rank=rank,
        host=HOSTS[rank],
        connection="tcp",
        state="gone" if is_lost else "connected",
        why=SILENT if is_lost else "",
        ended=10.0 if is_lost else None,
        heard=8.0,
        streams=2,
        streams_alive=0 if is_lost else 2,
        bytes_sent=1,
        bytes_received=1,
    )


def write(folder: Path, rank: int, lost: set[int]) -> None:
    """Write the record of a rank that lost others, as the engine of a rank behind a cut does."""
    text = f"rank {min(lost)} ({HOSTS[min(lost)]}, tcp) {SILENT}"
    engine = RecordedEngine(
        rank=rank,
        world_size=len(HOSTS),
        epoch=1,
        is_open=True,
        ended_operations=3,
        events=(RecordedEvent(kind="failed", text=text, at=10.0, wall=20.0, group="world"),),
        peers=tuple(peer(each, is_lost=each in lost) for each in range(len(HOSTS)) if each != rank),
    )
    record = FlightRecord(
        rank=rank,
        world_size=len(HOSTS),
        host=HOSTS[rank],
        pid=100 + rank,
        command=("train.py",),
        started=1.0,
        clock=ClockReading(wall=20.0, monotonic=10.0),
        engines=(engine,),
    )
    record_path(folder, rank).write_text(as_json(record))


def test_hosts_that_lost_each_other_have_no_network_between_them(tmp_path: Path) -> None:
    for rank, lost in enumerate(({2, 3}, {2, 3}, {0, 1}, {0, 1})):
        write(tmp_path, rank, lost)
    told = explain(tmp_path)
    assert told.kind == "network"
    assert told.headline == (
        "The network between host a (ranks 0, 1) and host b (ranks 2, 3) was cut: each side lost"
        " the other, and both were running."
    )
    assert told.ranks_at_fault == (0, 1, 2, 3)


def test_a_rank_that_is_silent_for_all_others_and_has_no_record_is_lost(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        write(tmp_path, rank, {3})
    told = explain(tmp_path)
    assert told.kind == "lost"
    assert told.ranks_at_fault == (3,)
    assert told.headline.startswith("Rank 3 (host b) went silent: its process was stopped, or")
