"""Bytes of pictures in, numbers per channel out."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.graph.graph import SLIPSTREAM, Value
from slipstream.infer.native.operations import OPERATIONS
from slipstream.infer.native.partition import partition
from slipstream.infer.native.runner import Runner

SIZES = [(1, 1, 1), (1, 8, 8), (2, 7, 9), (3, 17, 5), (1, 33, 47), (2, 16, 64)]


def pixels(sketch, batch, height, width, channels, seed=0):
    """Return a Pixels node over a new input, its output, and its inputs."""
    name = f"bytes{len(sketch.graph.inputs)}"
    sketch.graph.inputs[name] = Value(np.dtype(np.uint8), (batch, height, width, channels))
    scale = [0.0171, 0.0175, 0.0174][:channels]
    shift = [-2.118, -2.036, -1.804][:channels]
    output = sketch("Pixels", name, scale=scale, shift=shift)
    sketch.graph.nodes[-1].domain = SLIPSTREAM
    shape = (batch, channels, height, width)
    sketch.graph.values[output] = Value(np.dtype(np.float32), shape)
    random = np.random.default_rng(seed)
    return output, {name: random.integers(0, 256, (batch, height, width, channels), np.uint8)}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("batch", "height", "width"), SIZES)
def test_bytes_are_normalised_before_zeros_are_put_around(
    sketch, check, kind, batch, height, width, channels
):
    x, feeds = pixels(sketch, batch, height, width, channels)
    check(sketch.done(sketch.conv(x, 20)), kind, feeds=feeds)


@pytest.mark.parametrize("channels", [1, 3])
def test_numbers_are_given_as_they_are(sketch, check, channels):
    x, feeds = pixels(sketch, 2, 5, 7, channels)
    check(sketch.done(x), "float32", feeds=feeds)


def test_strided_and_depthwise_convolutions_read_them(sketch, check, kind):
    x, feeds = pixels(sketch, 1, 30, 31, 3)
    wide = sketch.conv(x, 33, 7, strides=[2, 2], pads=[3, 3, 3, 3])
    deep = sketch.conv(x, 3, 3, group=3)
    check(sketch.done(wide, deep), kind, feeds=feeds, or_refused=kind == "bytes")


def test_two_pictures_and_floats_may_be_inputs_at_a_time(sketch, check):
    x, feeds = pixels(sketch, 1, 6, 6, 3)
    y = sketch.input(1, 4, 6, 6)
    z, more = pixels(sketch, 1, 6, 6, 1, seed=1)
    feeds |= more | {y: sketch.random.standard_normal((1, 4, 6, 6)).astype(np.float32)}
    ends = [sketch.conv(each, 8) for each in (x, y, z)]
    check(sketch.done(sketch("Add", sketch("Add", *ends[:2]), ends[2])), "float32", feeds=feeds)


def test_bytes_that_others_read_too_are_read_before_our_part(sketch):
    x, feeds = pixels(sketch, 1, 6, 6, 3)
    ((name, given),) = feeds.items()
    mean = sketch("ReduceMax", name, keepdims=1)
    cast = sketch("Cast", mean, to=1)
    graph = sketch.done(sketch("Add", sketch.conv(x, 8), cast))
    parts = partition(graph, OPERATIONS)
    assert parts.head is not None
    found = Runner(graph, {}, 1).run(feeds)
    assert found[graph.outputs[0]].shape == (1, 8, 6, 6)
    assert given.dtype == np.uint8


def test_bytes_that_are_given_are_left_to_others(sketch):
    x, feeds = pixels(sketch, 1, 6, 6, 3)
    graph = sketch.done(sketch("Cast", sketch("Relu", sketch.conv(x, 8)), to=2))
    found = Runner(graph, {}, 1).run(feeds)[graph.outputs[0]]
    assert (found.dtype, found.shape) == (np.uint8, (1, 8, 6, 6))
