"""Products of bytes, number by number: against the same arithmetic in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream import _kernels as kernels
from slipstream.infer.native.formats import Bytes, Weights
from slipstream.infer.native.lower import lower
from slipstream.infer.native.operations import OPERATIONS

INPUT = Bytes.of_range(-1.1, 2.3)
OUTPUT = Bytes.of_range(-3.7, 5.9)


def conv(numbers, weights, strides, pads, dilations, zero):
    """Return sums of products of whole numbers, of a picture padded with `zero`."""
    above, left, below, right = pads
    around = ((0, 0), (0, 0), (above, below), (left, right))
    padded = np.pad(numbers.astype(np.int64), around, constant_values=zero) - zero
    rows, columns = (d * (k - 1) + 1 for d, k in zip(dilations, weights.shape[2:], strict=True))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (rows, columns), axis=(2, 3))
    taken = windows[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    return np.einsum("bcyxij,kcij->bkyx", taken, weights.astype(np.int64))


def compute(graph, formats, feed):
    compiled = lower(graph, formats, OPERATIONS)
    result = np.empty(graph.shape(graph.outputs[0]), np.float32)
    compiled.program.run([feed, result], kernels.Workers(1))
    return result


def in_bytes(random, shape):
    """Return bytes, and the numbers that they represent."""
    numbers = random.integers(0, 256, shape)
    return numbers, ((numbers - INPUT.zero) * INPUT.scale).astype(np.float32)


def agrees(answer, expected, output):
    """Compare an answer, which may be off by one step of the format of the result."""
    if output is None:
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)
        return
    low, high = output.range
    np.testing.assert_allclose(answer, expected.clip(low, high), atol=1.001 * output.scale, rtol=0)


WINDOWS = [
    ((1, 1), [1, 1], [0, 0, 0, 0], [1, 1]),
    ((3, 3), [1, 1], [1, 1, 1, 1], [1, 1]),
    ((3, 3), [2, 2], [0, 1, 1, 0], [1, 1]),
    ((5, 5), [3, 1], [2, 2, 2, 2], [1, 1]),
    ((3, 3), [1, 1], [2, 2, 2, 2], [2, 2]),
    ((1, 7), [1, 2], [0, 3, 0, 3], [1, 1]),
]


@pytest.mark.parametrize("output", [None, OUTPUT])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize(("channels", "into"), [(3, 24), (16, 16), (17, 5), (40, 100)])
def test_conv(sketch, window, channels, into, output):
    size, strides, pads, dilations = window
    x = sketch.input(2, channels, 8, 9)
    y = sketch.conv(x, into, size, strides=strides, pads=pads, dilations=dilations)
    graph = sketch.done(y)
    real, bias = (graph.constants[name] for name in graph.nodes[0].inputs[1:])
    numbers, feed = in_bytes(sketch.random, (2, channels, 8, 9))
    weights = Weights.quantise(real)
    sums = conv(numbers, weights.numbers, strides, pads, dilations, INPUT.zero)
    expected = sums * (weights.scale * INPUT.scale)[:, None, None] + bias[:, None, None]
    agrees(compute(graph, {x: INPUT, y: output}, feed), expected, output)


@pytest.mark.parametrize("output", [None, OUTPUT])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("channels", [3, 16, 17, 64, 100])
def test_depthwise(sketch, window, channels, output):
    size, strides, pads, dilations = window
    x = sketch.input(2, channels, 8, 9)
    y = sketch.conv(x, channels, size, channels, strides=strides, pads=pads, dilations=dilations)
    graph = sketch.done(y)
    real, bias = (graph.constants[name] for name in graph.nodes[0].inputs[1:])
    numbers, feed = in_bytes(sketch.random, (2, channels, 8, 9))
    weights = Weights.quantise(real)
    whole = np.zeros((channels, channels, *size), np.int64)
    whole[range(channels), range(channels)] = weights.numbers[:, 0]
    sums = conv(numbers, whole, strides, pads, dilations, INPUT.zero)
    expected = sums * (weights.scale * INPUT.scale)[:, None, None] + bias[:, None, None]
    agrees(compute(graph, {x: INPUT, y: output}, feed), expected, output)


@pytest.mark.parametrize("output", [None, OUTPUT])
@pytest.mark.parametrize("shape", [(3, 17), (2, 7, 40), (1, 50, 3)])
@pytest.mark.parametrize("into", [5, 16, 100])
def test_linear(sketch, shape, into, output):
    x = sketch.input(*shape)
    y = sketch.linear(x, into)
    graph = sketch.done(y)
    real, bias = (graph.constants[name] for name in graph.nodes[0].inputs[1:])
    numbers, feed = in_bytes(sketch.random, shape)
    weights = Weights.quantise(np.ascontiguousarray(real.T))
    sums = (numbers - INPUT.zero) @ weights.numbers.T.astype(np.int64)
    expected = sums * (weights.scale * INPUT.scale) + bias
    agrees(compute(graph, {x: INPUT, y: output}, feed), expected, output)


@pytest.mark.parametrize("output", [OUTPUT, Bytes.of_range(0, 3.3)])
@pytest.mark.parametrize("shape", [(2, 24, 5, 7), (3, 17)])
def test_relu(sketch, shape, output):
    x = sketch.input(*shape)
    y = sketch("Relu", x)
    numbers, feed = in_bytes(sketch.random, shape)
    expected = np.maximum((numbers - INPUT.zero) * INPUT.scale, 0)
    agrees(compute(sketch.done(y), {x: INPUT, y: output}, feed), expected, output)


@pytest.mark.parametrize("shape", [(2, 24, 5, 7), (2, 3, 4, 4), (3, 17)])
def test_values_survive_the_way_in_and_out(sketch, shape):
    x = sketch.input(*shape)
    y = sketch("Reshape", x, sketch.constant([shape[0], -1]))
    numbers, feed = in_bytes(sketch.random, shape)
    answer = compute(sketch.done(y), {x: INPUT, y: INPUT}, feed)
    back = np.rint(answer / INPUT.scale + INPUT.zero).astype(int)
    np.testing.assert_array_equal(back, numbers.reshape(shape[0], -1))
