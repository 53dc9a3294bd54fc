"""Intervals around seconds, efficiency and memory, and their file."""

from pathlib import Path

import pytest

pytest.importorskip("pydantic")

from slipstream.errors import ConfigError
from slipstream.forecast.search.intervals import Bounds, Intervals, load, quantiles, save

SOME = Intervals({"": 0.7, "image": 0.8}, {"": 1.5, "image": 1.2}, Bounds(0.85, 1.05))


def test_what_is_saved_is_loaded(tmp_path: Path):
    save(SOME, tmp_path / "some.toml")
    assert load(tmp_path / "some.toml") == SOME


def test_those_that_come_with_slipstream_hold_the_value():
    shipped = load()
    for group in ("", "language", "nothing of that name"):
        found = shipped.around(10.0, group)
        assert found.low < 10 < found.high
    for bounds in (shipped.efficiency, shipped.memory):
        assert 0 < bounds.low < 1 <= bounds.high


def test_seconds_have_the_factors_of_their_group():
    assert SOME.around(10.0, "image").high == pytest.approx(12)
    assert SOME.around(10.0, "encoder").high == pytest.approx(15)


def test_efficiency_is_no_more_than_one_and_certain_for_one_device():
    found = SOME.of_efficiency(0.98, 8)
    assert (found.value, found.high) == (0.98, 1.0)
    assert found.low == pytest.approx(0.833)
    alone = SOME.of_efficiency(1.0, 1)
    assert alone.low == alone.value == alone.high == 1


def test_quantiles_hold_their_share():
    ratios = [1.01**place for place in range(-50, 50)]
    low, high = quantiles(ratios)
    inside = sum(low <= each <= high for each in ratios)
    assert 78 <= inside <= 84


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path):
    (tmp_path / "bad.toml").write_text("[low]\n'' = 1\n")
    with pytest.raises(ConfigError, match="cannot be read as intervals"):
        load(tmp_path / "bad.toml")


def test_intervals_that_are_not_said_are_wide():
    usual = Intervals({"": 1.0}, {"": 1.0})
    assert (usual.efficiency, usual.memory) == (Bounds(0.8, 1.1), Bounds(0.9, 1.1))
    around = usual.memory.around(10.0)
    assert (around.value, around.low, around.high) == (10.0, 9.0, pytest.approx(11.0))
    # Two devices have an interval; a forecast above 1 is its own upper bound.
    two = usual.of_efficiency(1.05, 2)
    assert (two.low, two.high) == (pytest.approx(0.84), 1.05)


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # A tenth of the number of ratios plus one lies below, but the bound is at least the smallest
    # ratio.
    [(1, 1, 1), (9, 1, 9), (18, 1, 18), (19, 2, 18), (20, 2, 19), (29, 3, 27), (30, 3, 28)],
)
def test_a_tenth_lies_beyond_each_end(count: int, low: int, high: int):
    found = quantiles([float(each) for each in range(1, count + 1)])
    assert found == pytest.approx((low, high))
    assert quantiles([4.0, 1.0, 2.0], 0.5) == pytest.approx((1.0, 4.0))
