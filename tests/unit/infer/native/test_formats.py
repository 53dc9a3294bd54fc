"""How numbers stand for reals."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream import _kernels as kernels
from slipstream.infer.native.formats import BFloat16, Bytes, Weights, size_of


@pytest.mark.parametrize(
    "ends", [(-1.0, 1.0), (0.0, 3.0), (-2.5, 0.0), (0.5, 4.0), (-3.0, -1.0), (0, 0)]
)
def test_bytes_cover_a_range_and_have_a_zero(ends):
    format_ = Bytes.of_range(*ends)
    assert format_.scale > 0
    assert format_.zero in range(256)
    low, high = format_.range
    assert low - format_.scale / 2 <= min(ends[0], 0)
    assert high + format_.scale / 2 >= max(ends[1], 0)


def halves_of(real):
    halves = np.empty((1, len(real)), np.uint16)
    kernels.as_halves(real[None], halves)
    return halves[0]


def test_bfloat16_is_the_nearest():
    random = np.random.default_rng(5)
    real = np.float32(random.standard_normal(10_000) * 10.0 ** random.integers(-20, 20, 10_000))
    back = (halves_of(real).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(back, real, rtol=2**-8)
    bits = real.view(np.uint32)
    below, above = (
        (bits & 0xFFFF0000).view(np.float32),
        ((bits & 0xFFFF0000) + 0x10000).view(np.float32),
    )
    nearest = np.where(np.abs(real - below) < np.abs(above - real), below, above)
    ties = np.abs(real - below) == np.abs(above - real)
    np.testing.assert_array_equal(back[~ties], nearest[~ties])


def test_bfloat16_ties_go_to_even():
    real = np.array([0x3F808000, 0x3F818000], np.uint32).view(np.float32)
    assert halves_of(real).tolist() == [0x3F80, 0x3F82]


def test_weights_have_a_scale_per_channel():
    real = np.random.default_rng(5).standard_normal((7, 3, 2, 2)).astype(np.float32)
    real[3] = 0
    weights = Weights.quantise(real)
    assert weights.numbers.dtype == np.int8
    rows = np.moveaxis(weights.numbers, 1, -1).reshape(7, -1).astype(int)
    greatest = np.abs(rows).max(axis=1)
    pairs = np.abs(rows[:, 1:] + rows[:, :-1]).max(axis=1)
    if kernels.adds_pairs():
        assert pairs.max() <= 128
        greatest = np.maximum(greatest, pairs)
    assert greatest.max() <= 128
    assert np.delete(greatest, 3).min() >= (120 if kernels.adds_pairs() else 127)
    assert greatest[3] == 0
    scale = weights.scale[:, None, None, None]
    assert np.all(np.abs(weights.numbers * scale - real) <= scale / 2 * 1.0001)


@pytest.mark.parametrize("shape", [(7, 1), (5, 3, 3, 3), (16, 8, 1, 1), (40, 65)])
def test_weights_are_rounded_as_the_kernels_do_and_to_the_same_again(shape):
    real = np.random.default_rng(6).standard_normal(shape).astype(np.float32)
    weights = Weights.quantise(real)
    rows = np.moveaxis(real, 1, -1).reshape(shape[0], -1)
    numbers, scale = np.empty(rows.shape, np.int8), np.empty(len(rows), np.float32)
    kernels.as_bytes(rows, numbers, scale, np.empty(len(rows), np.int32))
    np.testing.assert_array_equal(scale, weights.scale)
    found = np.moveaxis(weights.numbers, 1, -1).reshape(rows.shape)
    np.testing.assert_array_equal(numbers, found)
    again = Weights.quantise(weights.numbers * weights.scale.reshape(-1, *[1] * (real.ndim - 1)))
    np.testing.assert_array_equal(again.numbers, weights.numbers)


def test_sizes():
    assert [size_of(each) for each in (None, BFloat16(), Bytes(1.0, 0))] == [4, 2, 1]
