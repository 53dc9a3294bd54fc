"""Timing by turns."""

from __future__ import annotations

import time
from functools import partial

import pytest

from slipstream.infer.measure import CALLS, LEAST_ROUNDS, WARM_UPS, interleave


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_the_order_turns_round_each_round():
    calls = []
    interleave(
        {name: partial(calls.append, name) for name in "abc"}, 10, most_rounds=5, final=1e9, turn=0
    )
    assert "".join(calls[3 * WARM_UPS :]) == "abccbaabccbaabc"


def test_every_contender_is_warmed_up_and_not_timed_for_it():
    calls = []
    timings = interleave({"a": lambda: calls.append(1)}, 10, most_rounds=7, turn=0)
    assert (timings["a"].rounds, len(calls)) == (7, 7 + WARM_UPS)


def test_the_first_call_of_a_turn_is_not_counted():
    last, names = [""], []

    def call(name):
        spin(0.004 if last[0] != name else 0.001)
        last[0] = name
        names.append(name)

    runs = {name: partial(call, name) for name in "ab"}
    timings = interleave(runs, 10, most_rounds=5)
    assert all(timing.low >= 0.001 and timing.median < 0.003 for timing in timings.values())
    assert len(names) == 2 * (WARM_UPS + 5 * CALLS)


def test_a_call_that_is_longer_than_a_turn_is_one():
    calls = []
    timings = interleave({"a": lambda: calls.append(spin(0.002))}, 10, most_rounds=5, turn=0.001)
    assert len(calls) == 5 + WARM_UPS
    assert timings["a"].low >= 0.002


def test_medians_and_quartiles_are_in_seconds_and_in_order():
    timings = interleave(
        {"fast": partial(spin, 0.001), "slow": partial(spin, 0.005)}, 10, most_rounds=9
    )
    fast, slow = timings["fast"], timings["slow"]
    assert 0.001 <= fast.median < slow.median
    assert fast.low <= fast.median <= fast.high
    assert slow.median >= 0.005


def test_who_is_far_behind_is_timed_in_the_first_rounds_only():
    timings = interleave(
        {"fast": partial(spin, 0.001), "slow": partial(spin, 0.02)}, 10, most_rounds=20
    )
    assert timings["fast"].rounds == 20
    assert timings["slow"].rounds == LEAST_ROUNDS


def test_time_ends_it_after_the_first_rounds():
    timings = interleave({"a": partial(spin, 0.01)}, 0.001)
    assert timings["a"].rounds == LEAST_ROUNDS


def test_the_share_that_is_done_grows_to_one():
    shares = []
    interleave({"a": partial(spin, 0.001)}, 10, most_rounds=6, tell=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


def test_nobody_takes_no_time():
    assert interleave({}, 10) == {}
