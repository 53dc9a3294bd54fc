"""Ranges by four methods, of distributions that are known."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from slipstream.infer.quantize.observe import METHODS, Histogram, observe


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


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_values_of_16_bits_have_the_range_of_those_of_32(random, method, dtype):
    values = (3 * random.random(10_000)).astype(dtype)
    assert seen(values).range(method) == seen(values.astype(np.float32)).range(method)


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_a_few_far_outliers_are_cut_off(random, method):
    values = np.append(random.standard_normal(100_000), [40.0, -30.0])
    low, high = seen(values).range(method)
    assert -15 < low < -1.8
    assert 1.8 < high < 20


@pytest.mark.parametrize("method", METHODS)
def test_one_value_is_its_own_range(method):
    assert seen(np.full(10, 2.5)).range(method) == (2.5, 2.5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [0.0, 1.0, 5.0, -1e4, 1e30, -3.4e38, 1e-40])
def test_a_value_that_never_changes_is_its_own_range_in_float32(value, method):
    """A user reported this for a mask of ones."""
    values = np.full((4, 8), value, np.float32)
    assert seen(values).range(method) == (values[0, 0], values[0, 0])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("middle", [1.0, -1e4, 1e30])
def test_values_that_hardly_change_have_a_range_around_them(random, middle, method):
    values = (middle * (1 + 1e-7 * random.integers(0, 3, 1000))).astype(np.float32)
    low, high = seen(values).range(method)
    assert low <= values.min() + 1e-3 * abs(middle)
    assert high >= values.max() - 1e-3 * abs(middle)


@pytest.mark.parametrize("strange", [np.inf, -np.inf, np.nan])
def test_values_that_are_once_infinite_never_become_bytes(build, random, strange):
    """A mask of minus infinity that is added before a softmax is such a value."""
    graph = build(
        """(float[1,8] x, float[1,8] mask) => (float[1,8] y) {
            a = MatMul(x, w) b = Add(a, mask) s = Softmax(b) y = MatMul(s, w)
        }""",
        w=random.standard_normal((8, 8)),
    )
    samples = []
    for number in range(3):
        mask = np.zeros((1, 8), np.float32)
        mask[0, 3] = strange if number == 1 else 0
        samples.append({"x": random.standard_normal((1, 8)).astype(np.float32), "mask": mask})
    found = observe(graph, samples, ["x", "mask", "a", "b"])
    assert list(found) == ["x", "a"]
    assert found["a"].counts.sum() == 24
