"""The place in its program at which a rank was."""

from collections.abc import Sequence

import pytest

from slipstream.flight.facts import RankFacts
from slipstream.flight.record import (
    ClockReading,
    FlightRecord,
    Occasion,
    RaisedError,
    StackLine,
    ThreadStack,
)

SCRIPT = StackLine(file="/home/me/train.py", line=7, function="train")
MODULE = StackLine(file="/home/me/train.py", line=90, function="<module>")
RUN = StackLine(
    file="/usr/lib/python3.11/runpy.py", line=88, function="_run_module_as_main", is_library=True
)
WAIT = StackLine(file="/usr/lib/python3.11/threading.py", line=8, function="wait", is_library=True)
HOOK = StackLine(file="/lib/slipstream/comm/flight.py", line=9, function="hook", is_library=True)


def occasion(kind: str, lines: Sequence[StackLine], error: Sequence[StackLine] = ()) -> Occasion:
    """Return an occasion with a stack of the main thread, and perhaps an exception."""
    raised = None
    if error:
        raised = RaisedError(
            type="ValueError", message="bad", lines=tuple(error), is_communication=False
        )
    stack = ThreadStack(name="MainThread", lines=tuple(lines))
    return Occasion(kind=kind, text=kind, at=1.0, wall=1.0, error=raised, stacks=(stack,))


def facts(*occasions: Occasion) -> RankFacts:
    """Return what is known of a rank with a record of some occasions."""
    record = FlightRecord(
        rank=0,
        world_size=2,
        host="a",
        pid=7,
        command=("train.py",),
        started=0.0,
        clock=ClockReading(wall=9.0, monotonic=9.0),
        occasions=occasions,
        engines=(),
    )
    return RankFacts(rank=0, host="a", pid=7, record=record, engine=None, end=None, crash="")


@pytest.mark.parametrize(
    ("occasions", "place"),
    [
        ([occasion("failure", [MODULE, SCRIPT, WAIT])], SCRIPT),
        ([occasion("failure", [RUN, WAIT])], WAIT),  # a program that is all in libraries
        # The main thread had left the program when SIGTERM came.
        ([occasion("signal", [HOOK, WAIT])], None),
        ([occasion("signal", [HOOK, WAIT]), occasion("ending", [HOOK], [MODULE, SCRIPT])], SCRIPT),
        ([occasion("signal", []), occasion("failure", [MODULE, WAIT])], MODULE),
    ],
)
def test_a_place_is_in_the_program(occasions: list[Occasion], place: StackLine | None) -> None:
    assert facts(*occasions).place == place


def test_an_exception_after_sigterm_is_no_cause() -> None:
    assert facts(occasion("ending", [HOOK], [MODULE])).own_error is None
    assert facts(occasion("exception", [HOOK], [MODULE])).own_error is not None
