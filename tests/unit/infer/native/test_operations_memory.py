"""What lies around the numbers of a value must not count, nor be written over.

Before each run memory is filled with what is no number: see spoil().
"""

from __future__ import annotations

import pytest

from slipstream.infer.native.lower import plan
from slipstream.infer.native.operations import OPERATIONS


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("channels", [1, 3, 5, 17])
def test_conv_of_an_odd_number_of_channels(check, sketch, channels, kernel):
    graph = sketch.done(sketch.conv(sketch.input(1, channels, 5, 5), 16, kernel))
    check(graph, "bfloat16")


@pytest.mark.parametrize("channels", [1, 3, 17])
def test_linear_of_an_odd_number_of_channels(check, sketch, channels):
    graph = sketch.done(sketch.linear(sketch.input(3, channels), 16))
    check(graph, "bfloat16")


def test_conv_of_an_odd_number_of_joined_channels(check, sketch):
    inputs = [sketch("Tanh", sketch.input(1, channels, 5, 5)) for channels in (16, 5)]
    graph = sketch.done(sketch.conv(sketch("Concat", *inputs, axis=1), 16))
    check(graph, "bfloat16")


def test_conv_of_what_a_kernel_wrote(check, sketch):
    """Kernels write zeros, or at least numbers, up to the next multiple of 16 channels."""
    graph = sketch.done(sketch.conv(sketch.conv(sketch.input(1, 16, 5, 5), 21), 16))
    check(graph, "bfloat16", room=2)


REPEATS = 10  # runs by four threads


@pytest.mark.parametrize(("channels", "group"), [(1, 1), (3, 1), (3, 3), (4, 1), (4, 4)])
def test_conv_of_few_channels_by_several_threads(check, kind, sketch, channels, group):
    y = sketch.conv(sketch.input(3, channels, 20, 21), channels, 3, group)
    check(sketch.done(y), kind, threads=[4] * REPEATS)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("op", ["Tanh", "MaxPool", "GlobalAveragePool", "Mul", "Softmax", "norm"])
def test_few_channels_by_several_threads(check, sketch, channels, op):
    if op in ("Softmax", "norm"):
        x = sketch.input(3, 40, channels)
        more = [] if op == "Softmax" else [sketch.vector(channels), sketch.vector(channels)]
        y = sketch("Softmax" if op == "Softmax" else "LayerNormalization", x, *more, axis=-1)
    else:
        x = sketch.input(30, channels, 20, 3)
        more = {"kernel_shape": [1, 1]} if op == "MaxPool" else {}
        gate = [sketch("Sigmoid", sketch.input(30, channels, 1, 1))] if op == "Mul" else []
        y = sketch(op, x, *gate, **more)
    check(sketch.done(y), "float32", threads=[4] * REPEATS)


@pytest.mark.parametrize("stride", [1, 2, 4, 8])
def test_depthwise_windows_may_read_five_outputs_further(sketch, stride):
    x = sketch.conv(sketch.input(1, 3, 16, 16), 32, 1)
    graph = sketch.done(sketch.conv(x, 32, 3, 32, strides=[stride, stride]))
    assert plan(graph, {}, OPERATIONS).needs[x].ahead >= 5 * stride + 1
