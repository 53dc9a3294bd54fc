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
    """Lets it tune for some windows; returns what their steps took."""
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
    assert any("no longer" in line for line in tuner.news)


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
    assert tuner.news == ["bucket 8 becomes 16: a step takes 1 s, not 1.5"]


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
