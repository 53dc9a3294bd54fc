"""Waiting for a cloud."""

from __future__ import annotations

import pytest

from slipstream.cluster.providers import BusyError, Pace

FAST = Pace(poll_seconds=0.0, settle_seconds=0.0, limit_seconds=0.05)


def test_a_check_is_repeated_until_it_holds() -> None:
    answers = iter([None, False, 7])
    assert FAST.until(lambda: next(answers), "the answer is there") == 7


def test_an_awaited_condition_is_named() -> None:
    with pytest.raises(
        BusyError, match=r"after 0\.05 s it is still not true that the machine runs"
    ):
        FAST.until(lambda: None, "the machine runs")


def test_a_busy_call_is_repeated() -> None:
    left = [1, 2]

    def call() -> str:
        if left:
            left.pop()
            raise BusyError("busy")
        return "done"

    assert FAST.retried(call) == "done"
    left[:] = range(10**6)
    with pytest.raises(BusyError, match="busy"):
        FAST.retried(call)


def test_a_list_settles_when_something_is_found() -> None:
    patient = Pace(poll_seconds=0.0, settle_seconds=30.0)
    answers = iter([[], [], ["vpc-1"]])
    assert patient.settled(lambda: next(answers)) == ["vpc-1"]
    assert FAST.settled(lambda: list[str]()) == []
