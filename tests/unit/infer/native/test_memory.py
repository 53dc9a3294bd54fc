"""Where values lie."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from slipstream.errors import UnsupportedError
from slipstream.infer.native.formats import BFloat16, Bytes
from slipstream.infer.native.memory import LINE, Border, Need, arrange, pixels


@pytest.mark.parametrize("seed", range(10))
def test_values_that_live_at_once_lie_apart(seed):
    random = np.random.default_rng(seed)
    needs = {}
    for index in range(40):
        shape = tuple(int(size) for size in random.integers(1, 20, random.integers(1, 5)))
        first = int(random.integers(0, 30))
        format_ = [None, BFloat16(), Bytes(1.0, 0)][random.integers(3)]
        border = Border(*(int(size) for size in random.integers(0, 3, 4)))
        last = first + int(random.integers(0, 6))
        needs[str(index)] = Need(shape, format_, first, last, border)
    places, total = arrange(needs.items())
    ends = {}
    for name, need in needs.items():
        begin = places[name].offset - need.location().offset
        assert begin % LINE == 0
        ends[name] = (begin, begin + need.bytes)
        assert ends[name][1] <= total
    for (one, a), (other, b) in itertools.combinations(needs.items(), 2):
        if a.first <= b.last and b.first <= a.last:
            assert ends[one][1] <= ends[other][0] or ends[other][1] <= ends[one][0]


def test_memory_is_used_again():
    needs = [(str(step), Need((1, 16, 8, 8), None, step, step + 1)) for step in range(10)]
    assert arrange(needs)[1] == 2 * needs[0][1].bytes


def test_pixels_are_16_channels_apart():
    place = Need((2, 17, 3, 5), BFloat16(), 0, 0, Border(1, 2, 3, 4)).location()
    assert place.pitch == ((1 + 3 + 3) * (2 + 5 + 4) * 64, (2 + 5 + 4) * 64, 64)
    assert place.offset == (1 * (2 + 5 + 4) + 2) * 64
    assert place.strides() == (place.pitch[0], 2, place.pitch[1], 64)


def test_pixels_of_few_colours_are_next_to_each_other():
    assert Need((1, 3, 4, 4), None, 0, 0, dense=True).location().pitch == (4 * 4 * 12, 4 * 12, 12)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((7,), (1, 1, 1, 7)),
        ((2, 7), (2, 1, 1, 7)),
        ((2, 5, 7), (2, 1, 5, 7)),
        ((2, 7, 3, 4), (2, 3, 4, 7)),
    ],
)
def test_pixels(shape, expected):
    assert pixels(shape) == expected


@pytest.mark.parametrize("shape", [(), (1, 2, 3, 4, 5)])
def test_other_dimensions(shape):
    with pytest.raises(UnsupportedError, match="1 to 4 dimensions"):
        pixels(shape)


@pytest.mark.parametrize("shape", [(1, 1152, 7, 7), (2, 24, 5, 7)])
def test_there_is_room_for_what_depthwise_kernels_read_ahead(shape):
    need = Need(shape, None, 0, 0)
    place = need.location()
    _, rows, columns, _ = place.sizes
    last = place.offset + place.sizes[0] * place.pitch[0]
    assert place.pitch[0] == rows * columns * place.pitch[2]
    assert need.bytes >= last + 12 * place.pitch[2]
