"""The tuner against step times that are a function of its knobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from slipstream.comm.tuner import FIRST_REST, Knob, Measured, Tuner
from slipstream.comm.tuning import FIRST_STEPS, WINDOW, segment_sizes
from slipstream.settings import Settings

Steps = Callable[[Mapping[str, int]], float]


def knobs() -> list[Knob]:
    return [
        Knob("bucket", [1, 2, 4, 8, 16, 32], 8),
        Knob("segment", [32, 64, 128], 128),
        Knob("doubling", [8, 32, 128, 512], 32),
        Knob("direct", [0, 2, 8, 32], 8),
    ]


def run(
    tuner: Tuner, turned: list[Knob], steps: Steps, windows: int, waited: float = 0.5
) -> list[float]:
    """Let the tuner run for some windows; return the times of their steps."""
    times: list[float] = []
    for _ in range(windows):
        times.append(steps({each.name: each.value for each in turned}))
        tuner.take(Measured(times[-1], waited * times[-1]))
    return times


@pytest.mark.parametrize("best", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("segment", [32, 64, 128])
def test_finds_the_shortest_step_within_the_first_100_steps(best: int, segment: int) -> None:
    turned = knobs()
    tuner = Tuner(turned)

    def steps(now: Mapping[str, int]) -> float:
        far = abs(now["bucket"].bit_length() - best.bit_length())
        too_large = max(0, now["segment"].bit_length() - segment.bit_length())
        return 1 + 0.05 * far + 0.05 * too_large

    run(tuner, turned, steps, (100 - FIRST_STEPS) // (WINDOW + 2))
    assert tuner.is_settled
    assert turned[0].value == best
    assert turned[1].value <= segment


def test_tries_nothing_where_steps_do_not_wait() -> None:
    turned = knobs()
    tuner = Tuner(turned)
    seen: list[int] = []

    def steps(now: Mapping[str, int]) -> float:
        seen.append(now["bucket"])
        return 1.0

    run(tuner, turned, steps, 200, waited=0.01)
    assert set(seen) == {8}
    assert tuner.is_settled


def test_costs_less_than_2_percent_where_nothing_is_gained() -> None:
    turned = knobs()
    tuner = Tuner(turned)

    def steps(now: Mapping[str, int]) -> float:
        return 1.0 if (now["bucket"], now["segment"]) == (8, 128) else 1.2

    times = run(tuner, turned, steps, 100)
    assert (turned[0].value, turned[1].value) == (8, 128)
    assert sum(times) / len(times) < 1.02


def test_noise_moves_nothing() -> None:
    turned = knobs()
    tuner = Tuner(turned)
    random = 1

    def steps(_: Mapping[str, int]) -> float:
        nonlocal random
        random = (random * 1664525 + 1013904223) % 2**32
        return 1 + 0.02 * random / 2**32

    run(tuner, turned, steps, 400)
    assert (turned[0].value, turned[1].value) == (8, 128)


def test_looks_again_when_the_network_has_changed() -> None:
    turned = knobs()
    tuner = Tuner(turned)
    run(tuner, turned, lambda now: 1 + 0.05 * abs(now["bucket"].bit_length() - 4), 20)
    assert turned[0].value == 8
    run(tuner, turned, lambda now: 2 + 0.2 * abs(now["bucket"].bit_length() - 1), 20)
    assert turned[0].value == 1
    assert any("instead of" in line for line in tuner.news)


def test_one_odd_window_is_no_change() -> None:
    turned = knobs()
    tuner = Tuner(turned)
    run(tuner, turned, lambda _: 1.0, 20)
    assert tuner.is_settled
    run(tuner, turned, lambda _: 3.0, 1)
    run(tuner, turned, lambda _: 1.0, FIRST_REST // 4)
    assert tuner.is_settled


def test_says_what_it_changed_and_why() -> None:
    turned = knobs()
    tuner = Tuner(turned)
    run(tuner, turned, lambda now: 1.0 if now["bucket"] >= 16 else 1.5, 20)
    assert tuner.news == ["bucket 8 becomes 16: a step takes 1 s instead of 1.5"]


def test_a_value_from_elsewhere_is_one_of_the_values() -> None:
    knob = Knob("bucket", [1, 2, 4], 3)
    assert knob.values == [1, 2, 3, 4]
    assert knob.value == 3
    knob.set(100)
    assert knob.value == 4
    assert not knob.can_move(1)


@pytest.mark.parametrize("segment", [4096, 8192, 32768, 100_032, 131_072, 262_144])
@pytest.mark.parametrize("eager", [4096, 16384, 65536])
def test_only_segments_that_the_engine_takes_are_tried(segment: int, eager: int) -> None:
    sizes = segment_sizes(Settings(segment_bytes=segment, eager_bytes=eager))
    assert all(eager <= size <= segment and size % 64 == 0 for size in sizes)
    assert sizes == [] or sizes[-1] == segment


def tries_after(windows: list[Measured]) -> int:
    """Return the number of windows after which the one knob is first turned, or 0 for never."""
    knob = Knob("bucket", [1, 2], 1)
    tuner = Tuner([knob])
    for number, window in enumerate(windows, 1):
        tuner.take(window)
        if knob.value != 1:
            return number
    return 0


@pytest.mark.parametrize(("waited", "after"), [(0.0, 0), (0.02, 0), (0.0201, 2), (1.0, 2)])
def test_only_who_waits_for_more_than_2_percent_tries(waited: float, after: int) -> None:
    assert tries_after([Measured(1.0, waited)] * 10) == after


@pytest.mark.parametrize(
    ("seconds", "after"),
    [([1.0, 1.09], 2), ([1.0, 1.11, 1.0], 0), ([1.0, 1.2, 1.0, 1.2, 1.0], 5), ([1.0, 0.8, 0.8], 3)],
)
def test_two_windows_alike_are_awaited_but_no_more_than_four(
    seconds: list[float], after: int
) -> None:
    assert tries_after([Measured(each, each) for each in seconds]) == after


@pytest.mark.parametrize(
    ("second", "trial", "kept"),
    [
        (1.0, 0.9701, 1),
        (1.0, 0.9699, 2),
        (1.04, 0.941, 1),  # 1.5 times the difference between the two
        (1.04, 0.939, 2),
        (0.96, 0.901, 1),  # of the shorter one
        (0.96, 0.899, 2),
    ],
)
def test_a_trial_must_bring_more_than_3_percent_and_than_noise(
    second: float, trial: float, kept: int
) -> None:
    knob = Knob("bucket", [1, 2], 1)
    tuner = Tuner([knob])
    for seconds in (1.0, second, trial):
        tuner.take(Measured(seconds, seconds))
    assert knob.value == kept
    assert tuner.is_settled is True


@pytest.mark.parametrize(
    ("seconds", "changed"),
    [
        ([1.24, 1.24], False),
        ([1.25, 1.25], True),
        ([0.81, 0.81], False),
        ([0.8, 0.8], True),
        ([1.3, 1.0, 1.3], False),
        ([0.5, 2.0], True),
    ],
)
def test_two_windows_in_a_row_that_differ_by_a_quarter_are_a_change(
    seconds: list[float], changed: bool
) -> None:
    tuner = Tuner(knobs())
    for each in (1.0, *seconds):
        tuner.take(Measured(each, 0.0))
    assert tuner.is_settled is not changed
    news = [f"a step now takes {seconds[-1]:g} s instead of 1"] if changed else []
    assert tuner.news == news


def test_each_rest_is_twice_as_long_up_to_1024_windows_and_begins_anew_after_a_change() -> None:
    tuner = Tuner(knobs())
    looks: list[int] = []
    for number in range(32 + 64 + 128 + 256 + 512 + 3 * 1024 + 8):
        tuner.take(Measured(1.0, 0.0))
        if not tuner.is_settled:
            looks.append(number - sum(looks))
    assert looks == [32, 65, 129, 257, 513, 1025, 1025, 1025]
    for seconds in (1.0, 9.0, 9.0):
        tuner.take(Measured(seconds, 0.0))
    assert not tuner.is_settled
    windows = 0
    while tuner.is_settled or windows == 0:
        tuner.take(Measured(9.0, 0.0))
        windows += 1
    assert windows == 33


def test_a_knob_goes_down_only_where_up_was_no_better() -> None:
    turned = [Knob("bucket", [1, 2, 4, 8], 4)]
    tuner = Tuner(turned)
    seen: list[int] = []

    def steps(now: Mapping[str, int]) -> float:
        seen.append(now["bucket"])
        return {8: 2.0, 4: 1.0, 2: 0.5, 1: 0.7}[now["bucket"]]

    run(tuner, turned, steps, 6)
    assert seen == [4, 4, 8, 2, 1, 2]
    assert tuner.news == ["bucket 4 becomes 2: a step takes 0.5 s instead of 1"]


@pytest.mark.parametrize(("wanted", "value"), [(0, 1), (2, 1), (3, 1), (4, 5), (9, 9), (100, 9)])
def test_a_knob_is_set_to_the_nearest_value_or_the_lower_of_two(wanted: int, value: int) -> None:
    knob = Knob("bucket", [9, 5, 1], 9)
    knob.set(wanted)
    assert (knob.value, knob.values) == (value, [1, 5, 9])
    assert [knob.can_move(by) for by in (-1, 1)] == [value > 1, value < 9]
