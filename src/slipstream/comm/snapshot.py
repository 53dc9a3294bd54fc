"""The state of an engine in the form of flight records."""

from __future__ import annotations

from slipstream import _core
from slipstream.flight.record import (
    ClockReading,
    RecordedEngine,
    RecordedEvent,
    RecordedGroup,
    RecordedOperation,
    RecordedPeer,
)

_STATS = (
    "operations",
    "failed_operations",
    "network_bytes_sent",
    "network_bytes_received",
    "shm_bytes_sent",
    "shm_bytes_received",
    "segments_sent_again",
    "streams_lost",
    "streams_reopened",
    "streams",
    "stalls_reported",
)
_MOST_CHARACTERS = 2000


def recorded_engine(
    runtime: _core.Runtime, clock: ClockReading, *, is_open: bool = True
) -> RecordedEngine:
    """Return the state of an engine with its last operations and events.

    The call takes the engine's turn, so it may wait for some microseconds.

    Args:
        runtime: The engine.
        clock: Both clocks of this host, by which times become wall-clock times.
        is_open: Whether the engine is open (default True).
    """
    snapshot, counters = runtime.flight(), runtime.stats()
    return RecordedEngine(
        rank=snapshot.rank,
        world_size=snapshot.world_size,
        epoch=snapshot.epoch,
        is_open=is_open,
        ended_operations=snapshot.ended_operations,
        stats={name: float(getattr(counters, name)) for name in _STATS},
        operations=tuple(_operation(each, clock) for each in snapshot.operations),
        events=tuple(_event(each, clock) for each in snapshot.events),
        peers=tuple(_peer(each) for each in snapshot.peers),
        groups=tuple(_group(each) for each in snapshot.groups),
    )


def _operation(record: _core.OperationRecord, clock: ClockReading) -> RecordedOperation:
    newest = max(record.submitted, record.started, record.completed)
    return RecordedOperation(
        collective=record.collective,
        name=record.name[:_MOST_CHARACTERS],
        group=record.group,
        sequence=record.sequence,
        dtype=record.dtype,
        bytes=record.bytes,
        state=record.state,
        submitted=_seconds(record.submitted),
        started=_moment(record.started),
        ended=_moment(record.completed),
        wall=_wall(newest, clock),
        error=record.error[:_MOST_CHARACTERS],
        absent=tuple(record.absent),
        missing=tuple(record.missing),
    )


def _event(event: _core.FlightEvent, clock: ClockReading) -> RecordedEvent:
    return RecordedEvent(
        kind=event.kind,
        text=event.text[:_MOST_CHARACTERS],
        at=_seconds(event.at),
        wall=_wall(event.at, clock),
        rank=None if event.rank < 0 else event.rank,
        group=event.group,
        sequence=event.sequence,
    )


def _peer(peer: _core.FlightPeer) -> RecordedPeer:
    return RecordedPeer(
        rank=peer.rank,
        host=peer.host,
        connection=peer.connection,
        state=peer.state,
        why=peer.why[:_MOST_CHARACTERS],
        ended=_moment(peer.ended),
        heard=_moment(peer.heard),
        streams=peer.streams,
        streams_alive=peer.streams_alive,
        bytes_sent=peer.bytes_sent,
        bytes_received=peer.bytes_received,
    )


def _group(group: _core.FlightGroup) -> RecordedGroup:
    return RecordedGroup(
        name=group.name,
        ranks=tuple(group.ranks),
        submitted=tuple(group.submitted),
        failure=group.failure[:_MOST_CHARACTERS],
    )


def _seconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e9, 6)


def _moment(nanoseconds: int) -> float | None:
    """Return the time in seconds, or None if the moment has not come."""
    return _seconds(nanoseconds) if nanoseconds else None


def _wall(nanoseconds: int, clock: ClockReading) -> float:
    return round(clock.wall + nanoseconds / 1e9 - clock.monotonic, 6)
