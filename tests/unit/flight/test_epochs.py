"""Records of elastic jobs: one epoch with its ranks, and folders with several epochs."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipstream.errors import UsageError
from slipstream.flight.account import explain
from slipstream.flight.codec import as_json, from_json, write_atomically
from slipstream.flight.epochs import EpochView
from slipstream.flight.files import (
    FIRST_KEPT,
    NEWEST_KEPT,
    drop_excess,
    epoch_crash_path,
    epoch_folders,
    launcher_path,
    num_dropped,
    record_path,
)
from slipstream.flight.launcher import LauncherRecord, RankEnd
from slipstream.flight.record import (
    ClockReading,
    FlightRecord,
    Occasion,
    RecordedEngine,
    RecordedEpoch,
    RecordedEvent,
    RecordedGroup,
    RecordedOperation,
    RecordedPeer,
)

INF = float("inf")
TITLE = "epoch 2-abcd0123"


def view(*numbers: int, began: float = 10.0) -> EpochView:
    return EpochView(number=2, title=TITLE, rank=0, numbers=numbers, slots=numbers, began=began)


def event(at: float, rank: int, group: str = TITLE) -> RecordedEvent:
    text = f"rank {rank} (a, tcp) is gone; ranks 0, 2-3 waited"
    return RecordedEvent(kind="failed", text=text, at=at, wall=at, rank=rank, group=group)


def operation(submitted: float, group: str, state: str = "failed") -> RecordedOperation:
    return RecordedOperation(
        collective="allreduce",
        name="gradient",
        group=group,
        sequence=3,
        dtype="float32",
        bytes=4,
        state=state,
        submitted=submitted,
        started=submitted,
        ended=submitted + 1,
        wall=submitted,
        absent=(3,),
    )


def peer(rank: int, state: str = "gone") -> RecordedPeer:
    return RecordedPeer(
        rank=rank,
        host="a",
        connection="tcp",
        state=state,
        why=f"rank {rank} has ended",
        ended=12.0 if state == "gone" else None,
        heard=None,
        streams=1,
        streams_alive=0,
        bytes_sent=0,
        bytes_received=0,
    )


def engine(**parts: Any) -> RecordedEngine:
    """Return the engine of four processes of which rank 1 was lost in an earlier epoch."""
    whole = RecordedEngine(
        rank=0,
        world_size=4,
        epoch=1,
        is_open=True,
        ended_operations=9,
        events=(event(5.0, 1, "world"), event(12.0, 3)),
        operations=(operation(4.0, "world"), operation(11.0, TITLE)),
        peers=(peer(1), peer(2, "connected"), peer(3)),
        groups=(
            RecordedGroup(name="world", ranks=(0, 1, 2, 3), submitted=(1, 1, 1, 1)),
            RecordedGroup(name=TITLE, ranks=(0, 2, 3), submitted=(4, 4, 3)),
        ),
    )
    return replace(whole, **parts)


def test_an_epoch_has_its_own_ranks_and_none_of_the_older_events() -> None:
    seen = view(0, 2, 3).of(engine(), INF)
    assert (seen.rank, seen.world_size) == (0, 3)
    assert [(each.at, each.rank, each.group) for each in seen.events] == [(12.0, 2, "world")]
    assert seen.events[0].text == "rank 2 (a, tcp) is gone; ranks 0-2 waited"
    assert [(each.submitted, each.absent) for each in seen.operations] == [(11.0, (2,))]
    assert [(each.rank, each.why) for each in seen.peers] == [
        (1, "rank 1 has ended"),
        (2, "rank 2 has ended"),
    ]
    assert [(each.name, each.ranks) for each in seen.groups] == [("world", (0, 1, 2))]


def test_later_events_belong_to_the_next_epoch() -> None:
    assert view(0, 2, 3).of(engine(), 11.5).events == ()
    later = engine(events=(event(12.0, 3, "epoch 3-ffff commits"),))
    assert view(0, 2, 3).of(later, INF).events == ()


def test_flags_of_commits_are_hidden_only_while_the_script_waits_for_others() -> None:
    flag = operation(11.0, f"{TITLE} commits")
    both = engine(operations=(flag, operation(11.1, TITLE)))
    assert [each.group for each in view(0, 2, 3).of(both, INF).operations] == ["world"]
    alone = engine(operations=(operation(11.0, TITLE, "done"), flag))
    groups = [each.group for each in view(0, 2, 3).of(alone, INF).operations]
    assert groups == ["world", "world commits"]


def write_fault(folder: Path, number: int, lost: int, *, wall: float, tail: str = "aa") -> Path:
    """Write the record of rank 0 of three ranks, in slots 2, 0 and 1, that lost another."""
    epoch = RecordedEpoch(
        number=number, title=f"epoch {number}-{tail}", slots=(2, 0, 1), followed_by=number + 1
    )
    seen = RecordedEngine(
        rank=0,
        world_size=3,
        epoch=1,
        is_open=True,
        ended_operations=1,
        events=(event(12.0, lost),),
        operations=(operation(11.0, "world"),),
        peers=(peer(lost),),
    )
    text = f"rank {lost} is gone"
    record = FlightRecord(
        rank=0,
        world_size=3,
        host="a",
        pid=70,
        command=("train.py",),
        started=0.0,
        clock=ClockReading(wall=wall + 1, monotonic=13.0),
        occasions=(Occasion(kind="failure", text=text, at=12.0, wall=wall),),
        engines=(seen,),
        epoch=epoch,
    )
    path = folder / f"epoch-{number:04}-{tail}"
    write_atomically(record_path(path, 0), as_json(record))
    for each in (record_path(path, 0), path):
        os.utime(each, (wall, wall))
    return path


def end(slot: int, epoch: int, seconds: float, status: int = -9) -> RankEnd:
    pid = 1000 * epoch + slot
    return RankEnd(rank=slot, host="a", pid=pid, status=status, seconds=seconds, epoch=epoch)


def write_launcher(folder: Path, *ends: RankEnd) -> None:
    record = LauncherRecord(
        command=("train.py",), started=100.0, seconds=99.0, ranks=ends, signal="SIGINT"
    )
    launcher_path(folder).write_text(as_json(record))


def test_the_newest_fault_is_explained_and_the_others_have_a_line_each(tmp_path: Path) -> None:
    first = write_fault(tmp_path, 1, 1, wall=110.0)
    write_fault(tmp_path, 3, 2, wall=120.0)
    write_launcher(tmp_path, end(0, 1, 10.0), end(1, 3, 20.0), end(2, 4, 90.0, -15))
    told = explain(tmp_path)
    assert told.ranks_at_fault == (2,)
    assert told.headline.startswith(
        "Rank 2 (host a, process 3001) was killed by signal 9 (SIGKILL) 20.0 s after the start;"
        " rank 0 was in allreduce 'gradient'"
    )
    assert [row.end for row in told.rows] == ["went on", "no record", "signal 9 (SIGKILL)"]
    assert told.survived == ("rank 0 went on in epoch 4, where ranks may have other numbers",)
    (other,) = told.others
    assert "Rank 1 (host a, process 1000) was killed by signal 9 (SIGKILL) 10.0 s" in other
    assert other.endswith(f"(slipstream explain {first})")
    assert explain(first).ranks_at_fault == (1,)
    assert explain(first).others == ()


def test_epochs_of_a_job_that_started_again_are_told_apart_by_their_times(tmp_path: Path) -> None:
    first = write_fault(tmp_path, 1, 1, wall=110.0)
    second = write_fault(tmp_path, 1, 1, wall=150.0, tail="bb")
    write_launcher(tmp_path, end(0, 1, 10.0, -9), end(0, 1, 50.0, -11))
    assert "(SIGKILL) 10.0 s" in explain(first).headline
    assert explain(second).kind == "crashed"


def write_starts(folder: Path, starts: tuple[float, ...], *ends: RankEnd, signal: str = "") -> None:
    record = LauncherRecord(
        command=("train.py",),
        started=100.0,
        seconds=99.0,
        ranks=ends,
        signal=signal,
        new_starts=starts,
    )
    launcher_path(folder).write_text(as_json(record))


def test_a_new_start_names_how_the_last_members_ended(tmp_path: Path) -> None:
    """A member was killed in epoch 1; the host of the others was lost in epoch 5."""
    lost = replace(end(1, 5, 40.0), status=None)
    left = replace(end(2, 5, 41.0, 143), by_launcher=True)
    stopped = replace(end(3, 2, 44.0, -9), by_launcher=True)
    write_starts(tmp_path, (42.0, 60.0), end(0, 1, 10.0), lost, left, stopped, end(0, 1, 59.0))
    second, first = explain(tmp_path).others
    assert "epoch 5 ended with 1 x a leave after SIGTERM on host a, 1 x a lost host a" in first
    assert "epoch 1 ended with 1 x signal 9 (SIGKILL) on host a" in second


def test_a_new_start_after_the_newest_record_is_told_with_it(tmp_path: Path) -> None:
    write_fault(tmp_path, 1, 1, wall=110.0)
    write_starts(tmp_path, (50.0,), end(0, 1, 10.0), end(0, 2, 49.0))
    told = explain(tmp_path)
    assert "after this fault: " in told.details[-1]
    write_starts(tmp_path, (5.0,), end(0, 1, 10.0))
    assert not any("after this fault" in line for line in explain(tmp_path).details)


def test_processes_that_the_launcher_ended_at_the_end_of_a_job_are_no_fault(tmp_path: Path) -> None:
    """A job was given up, and the SIGTERM of the launcher was taken for its end."""
    write_fault(tmp_path, 1, 1, wall=110.0)
    ended = write_fault(tmp_path, 1, 2, wall=150.0, tail="bb")
    record = from_json(FlightRecord, record_path(ended, 0).read_text())
    occasion = Occasion(kind="signal", text="SIGTERM", at=5.0, wall=150.0)
    record = replace(record, occasions=(occasion,), engines=())
    write_atomically(record_path(ended, 0), as_json(record))
    ends = [
        end(0, 1, 10.0, 1),
        *(replace(end(n, 1, 50.0, 143), by_launcher=True) for n in range(3)),
    ]
    write_starts(tmp_path, (20.0,), *ends)
    assert explain(ended).kind == "interrupted"
    assert explain(tmp_path).kind != "interrupted"
    write_starts(tmp_path, (20.0,), *ends, signal="SIGTERM")
    assert explain(tmp_path).kind == "interrupted"


def test_new_starts_at_times_that_no_clock_shows_are_refused(tmp_path: Path) -> None:
    write_starts(tmp_path, (1e18,), end(0, 1, 10.0))
    with pytest.raises(UsageError, match="times that no clock shows"):
        explain(tmp_path)


def test_a_crash_beside_the_folder_of_its_epoch_is_found(tmp_path: Path) -> None:
    path = write_fault(tmp_path, 1, 1, wall=110.0)
    text = "Fatal Python error: Segmentation fault\n"
    epoch_crash_path(tmp_path, path.name, 1).write_text(text)
    told = explain(tmp_path)
    assert (told.kind, told.ranks_at_fault) == ("crashed", (1,))


@pytest.mark.parametrize("count", [FIRST_KEPT + NEWEST_KEPT, FIRST_KEPT + NEWEST_KEPT + 5])
def test_many_faults_do_not_fill_the_disk(tmp_path: Path, count: int) -> None:
    numbers = list(range(1, count + 1))
    for number in numbers:
        write_fault(tmp_path, number, 1, wall=100.0 + number)
        drop_excess(tmp_path)
    kept = sorted({*numbers[:FIRST_KEPT], *numbers[-NEWEST_KEPT:]})
    assert [path.name for path in epoch_folders(tmp_path)] == [f"epoch-{n:04}-aa" for n in kept]
    dropped = count - len(kept)
    assert num_dropped(tmp_path) == dropped
    lines = [line for line in explain(tmp_path).others if "were dropped" in line]
    assert [line.split()[2] for line in lines] == ([str(dropped)] if dropped else [])
