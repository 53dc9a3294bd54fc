"""Ranges by four methods, of distributions that are known."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.quantize.observe import METHODS, Histogram


def seen(values):
    histogram = Histogram()
    histogram.widen(values[None])
    histogram.count(values)
    return histogram


@pytest.mark.parametrize("method", METHODS)
def test_all_of_what_is_even_is_covered(random, method):
    low, high = seen(random.random(100_000)).range(method)
    assert low == pytest.approx(0, abs=0.01)
    assert high == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("method", METHODS)
def test_of_a_bell_no_more_is_cut_off_than_its_tails(random, method):
    values = random.standard_normal(100_000)
    low, high = seen(values).range(method)
    assert ((values < low) | (values > high)).mean() < 0.03
    assert max(-low, high) <= np.abs(values).max() + 0.01


@pytest.mark.parametrize("method", METHODS)
def test_zeros_of_a_relu_do_not_outweigh_the_rest(random, method):
    values = np.maximum(random.standard_normal(100_000), 0)
    low, high = seen(values).range(method)
    assert low == 0
    assert (values > high).mean() < 0.01


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_a_few_far_outliers_are_cut_off(random, method):
    values = np.append(random.standard_normal(100_000), [40.0, -30.0])
    low, high = seen(values).range(method)
    assert -15 < low < -1.8
    assert 1.8 < high < 20


@pytest.mark.parametrize("method", METHODS)
def test_one_value_is_its_own_range(method):
    assert seen(np.full(10, 2.5)).range(method) == (2.5, 2.5)
