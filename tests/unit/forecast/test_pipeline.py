"""Schedules of pipelines compared with closed forms from the literature."""

from itertools import pairwise

import pytest

from slipstream.forecast.simulate.pipeline import StageTimes, schedule, steady_schedule
from slipstream.forecast.simulate.resources import Resources


def _end(stages: list[StageTimes], micro_batches: int, ranks: int = 0) -> float:
    return max(end for _, end in schedule(stages, micro_batches, Resources(), ranks))


@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
@pytest.mark.parametrize("micro_batches", [1, 3, 8, 20])
def test_equal_stages_wait_for_the_pipeline_to_fill_and_drain(ranks: int, micro_batches: int):
    # PipeDream-Flush: (m + p - 1) passes.
    assert _end([StageTimes(1.0, 2.0)] * ranks, micro_batches) == 3 * (micro_batches + ranks - 1)


@pytest.mark.parametrize("turns", [2, 4])
@pytest.mark.parametrize("ranks", [2, 4])
def test_stages_by_turns_divide_the_bubble(ranks: int, turns: int):
    # Narayanan et al. 2021, section 2.2: (p - 1) (f + b) / v.
    stages = [StageTimes(1.0 / turns, 2.0 / turns)] * (ranks * turns)
    found = _end(stages, 4 * ranks, ranks)
    assert found == pytest.approx(3 * 4 * ranks + 3 * (ranks - 1) / turns)


@pytest.mark.parametrize(("ranks", "turns"), [(1, 1), (4, 1), (3, 2), (4, 4)])
@pytest.mark.parametrize("micro_batches", [4, 12, 60])
def test_what_is_left_out_takes_as_long_as_what_is_not(ranks: int, turns: int, micro_batches: int):
    if turns > 1:
        micro_batches *= ranks
    times = [(1.0 + 0.1 * (n % 3), 2.0 + 0.3 * (n % 2), 0.05) for n in range(ranks * turns)]
    stages = [StageTimes(*each) for each in times]
    whole = schedule(stages, micro_batches, Resources(), ranks)
    short = steady_schedule(stages, micro_batches, Resources(), ranks)
    assert max(short)[1] == pytest.approx(max(whole)[1], rel=0.01)


def test_no_rank_does_two_things_at_once_and_nothing_before_what_it_needs():
    stages = [StageTimes(1.0 + n / 7, 2.0 + n / 5, 0.2) for n in range(8)]
    queues = Resources()
    schedule(stages, 8, queues, 4)
    assert len(queues.spans) == 2 * 8 * 8
    by_rank: dict[str, list[tuple[float, float]]] = {}
    for span in queues.spans:
        by_rank.setdefault(span.queue, []).append((span.start, span.end))
    for mine in by_rank.values():
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(mine))
    starts = [min(start for start, _ in mine) for _, mine in sorted(by_rank.items())]
    assert starts == pytest.approx([0, 1.2, 2.4 + 1 / 7, 3.6 + 3 / 7])
