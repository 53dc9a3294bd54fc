"""The bound on the size of a record."""

from dataclasses import replace

from slipstream.flight.codec import from_json
from slipstream.flight.record import (
    ClockReading,
    FlightRecord,
    Occasion,
    RecordedEngine,
    RecordedGroup,
    RecordedOperation,
    RecordedPeer,
    StackLine,
    ThreadStack,
)
from slipstream.flight.size import MAX_BYTES, bounded_text

NUM_RANKS = 1024


def huge() -> FlightRecord:
    line = StackLine(file="/data/" + "f" * 90, line=1, function="f" * 40, code="x" * 160)
    stacks = tuple(ThreadStack(name=f"thread {i}", lines=(line,) * 40) for i in range(32))
    occasion = Occasion(kind="failure", text="t" * 2000, at=1.0, wall=1.0, stacks=stacks)
    operation = RecordedOperation(
        collective="allreduce",
        name="n" * 2000,
        group="world",
        sequence=1,
        dtype="float32",
        bytes=8,
        state="failed",
        submitted=1.0,
        started=1.0,
        ended=2.0,
        wall=2.0,
        error="e" * 2000,
        absent=tuple(range(NUM_RANKS)),
    )
    peer = RecordedPeer(
        rank=0,
        host="h" * 60,
        connection="tcp",
        state="connected",
        why="",
        ended=None,
        heard=1.0,
        streams=9,
        streams_alive=9,
        bytes_sent=1,
        bytes_received=1,
    )
    peers = tuple(replace(peer, rank=rank) for rank in range(NUM_RANKS))
    peers = (*peers, replace(peer, rank=NUM_RANKS, state="gone"))
    members = tuple(range(NUM_RANKS))
    engine = RecordedEngine(
        rank=0,
        world_size=NUM_RANKS,
        epoch=1,
        is_open=True,
        ended_operations=1,
        operations=(operation,) * 128,
        peers=peers,
        groups=(RecordedGroup(name="world", ranks=members, submitted=members),) * 8,
    )
    return FlightRecord(
        rank=0,
        world_size=NUM_RANKS,
        host="a",
        pid=1,
        command=("x",),
        started=0.0,
        clock=ClockReading(wall=1.0, monotonic=1.0),
        occasions=(occasion,) * 6,
        engines=(engine,),
    )


def test_a_huge_record_keeps_what_explains_most() -> None:
    text = bounded_text(huge())
    assert len(text) <= MAX_BYTES
    kept = from_json(FlightRecord, text)
    assert len(kept.occasions) == 6
    assert len(kept.occasions[0].stacks[0].lines) > 0
    assert kept.engines[0].peers[0].state == "gone"
    assert kept.engines[0].operations[-1].state == "failed"


def test_a_small_record_is_complete() -> None:
    record = replace(huge(), occasions=(), engines=())
    assert from_json(FlightRecord, bounded_text(record)) == record
