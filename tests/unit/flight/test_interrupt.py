"""When SIGTERM explains the end of a job, and when it only followed a fault."""

import pytest

from slipstream.flight.facts import RankFacts
from slipstream.flight.folder import Evidence
from slipstream.flight.record import (
    ClockReading,
    FlightRecord,
    Occasion,
    RecordedEngine,
    RecordedEvent,
)
from slipstream.flight.waiting import find_interrupt


def facts(rank: int, signal_at: float | None, failed_at: float | None) -> RankFacts:
    """Return what is known of a rank that SIGTERM ended, or that has written no record (None)."""
    events = ()
    if failed_at is not None:
        events = (
            RecordedEvent(kind="failed", text="a rank is gone", at=failed_at, wall=failed_at),
        )
    engine = RecordedEngine(
        rank=rank, world_size=2, epoch=1, is_open=True, ended_operations=0, events=events
    )
    record = None
    if signal_at is not None:
        occasion = Occasion(kind="signal", text="SIGTERM", at=signal_at, wall=signal_at)
        record = FlightRecord(
            rank=rank,
            world_size=2,
            host="a",
            pid=7,
            command=("train.py",),
            started=0.0,
            clock=ClockReading(wall=9.0, monotonic=9.0),
            occasions=(occasion,),
            engines=(engine,),
        )
    return RankFacts(rank=rank, host="a", pid=7, record=record, engine=engine, end=None, crash="")


@pytest.mark.parametrize(
    ("first", "second", "is_cause"),
    [
        ((5.0, None), (5.0, None), True),
        ((5.0, None), (5.01, 5.005), True),  # it noticed the end of the first one
        ((5.01, 5.005), (5.0, None), True),
        ((5.0, 5.002), (5.0, 5.004), True),
        ((5.0, 1.0), (5.0, 1.0), False),  # the ranks had failed long before
        ((None, None), (5.0, 4.9), False),  # one was killed, and a launcher ended the other one
        ((None, None), (5.0, 5.1), False),
    ],
)
def test_sigterm_is_the_cause_if_it_came_first(
    first: tuple[float | None, float | None],
    second: tuple[float | None, float | None],
    is_cause: bool,
) -> None:
    ranks = {0: facts(0, *first), 1: facts(1, *second)}
    records = {rank: each.record for rank, each in ranks.items() if each.record is not None}
    cause = find_interrupt(Evidence(records=records), ranks)
    assert (cause is not None) == is_cause
    if cause is not None:
        assert cause.headline.startswith("SIGTERM ended the job")
