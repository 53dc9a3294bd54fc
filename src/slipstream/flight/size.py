"""The size of flight records: the least useful parts of a large record are left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from slipstream.flight.codec import as_json
from slipstream.flight.record import (
    FlightRecord,
    Occasion,
    RecordedEngine,
    RecordedOperation,
    ThreadStack,
)

MAX_BYTES = 100_000  # of a record

_FEW_LINES = 10
_FEW_THREADS = 8
_FEW_OPERATIONS = 32
_FEW_PEERS = 64
_FEW_CHARACTERS = 120


def bounded_text(record: FlightRecord) -> str:
    """Return a record as JSON of about `MAX_BYTES` at most."""
    text = as_json(record)
    for reduce in _REDUCTIONS:
        if len(text) <= MAX_BYTES:
            break
        record = reduce(record)
        text = as_json(record)
    return text


def _with_occasions(record: FlightRecord, change: Callable[[Occasion], Occasion]) -> FlightRecord:
    return replace(record, occasions=tuple(change(each) for each in record.occasions))


def _with_engines(
    record: FlightRecord, change: Callable[[RecordedEngine], RecordedEngine]
) -> FlightRecord:
    return replace(record, engines=tuple(change(each) for each in record.engines))


def _main_threads_later(record: FlightRecord) -> FlightRecord:
    """Keep the stacks of all threads only in the first occasion."""
    first, *later = record.occasions or (None,)
    if first is None:
        return record
    kept = (replace(each, stacks=each.stacks[:1]) for each in later)
    return replace(record, occasions=(first, *(each for each in kept)))


def _few_stacks(record: FlightRecord) -> FlightRecord:
    def shortened(stack: ThreadStack) -> ThreadStack:
        return replace(stack, lines=stack.lines[-_FEW_LINES:])

    return _with_occasions(
        record,
        lambda each: replace(
            each, stacks=tuple(shortened(stack) for stack in each.stacks[:_FEW_THREADS])
        ),
    )


def _few_operations(record: FlightRecord) -> FlightRecord:
    return _with_engines(
        record, lambda each: replace(each, operations=each.operations[-_FEW_OPERATIONS:])
    )


def _few_peers(record: FlightRecord) -> FlightRecord:
    """Keep the peers that are not connected first, because they explain more."""

    def reduced(engine: RecordedEngine) -> RecordedEngine:
        ordered = sorted(engine.peers, key=lambda peer: peer.state == "connected")
        return replace(engine, peers=tuple(ordered[:_FEW_PEERS]))

    return _with_engines(record, reduced)


def _few_members(record: FlightRecord) -> FlightRecord:
    """Leave out how far each member of a large group is."""

    def reduced(engine: RecordedEngine) -> RecordedEngine:
        groups = tuple(
            group if len(group.ranks) <= _FEW_PEERS else replace(group, ranks=(), submitted=())
            for group in engine.groups[-_FEW_PEERS:]
        )
        return replace(engine, groups=groups)

    return _with_engines(record, reduced)


def _short_texts(record: FlightRecord) -> FlightRecord:
    def shortened(operation: RecordedOperation) -> RecordedOperation:
        return replace(
            operation,
            name=operation.name[:_FEW_CHARACTERS],
            error=operation.error[:_FEW_CHARACTERS],
            absent=operation.absent[:_FEW_PEERS],
            missing=operation.missing[:_FEW_PEERS],
        )

    return _with_engines(
        record,
        lambda each: replace(
            each,
            operations=tuple(shortened(operation) for operation in each.operations),
            events=each.events[-_FEW_OPERATIONS:],
        ),
    )


_REDUCTIONS = (
    _main_threads_later,
    _few_peers,
    _few_stacks,
    _few_operations,
    _few_members,
    _short_texts,
)
