"""Means, pools and gates of pictures."""

from __future__ import annotations

import pytest

from slipstream.infer.native.formats import BFloat16
from slipstream.infer.native.lower import lower
from slipstream.infer.native.operations import OPERATIONS
from slipstream.infer.native.precision import storable

CHANNELS = (1, 3, 5, 16, 17, 24, 40, 64, 100)


@pytest.mark.parametrize("hidden", [1, 3, 8, 17])
@pytest.mark.parametrize("channels", [3, 16, 40])
@pytest.mark.parametrize(
    ("activation", "gate"),
    [
        ("Relu", "Sigmoid"),
        ("Silu", "Sigmoid"),
        ("HardSwish", "HardSigmoid"),
        ("Relu", "HardSigmoid"),
    ],
)
def test_squeeze_excite(check, kind, sketch, channels, hidden, activation, gate):
    x = sketch.input(3, channels, 5, 4)
    weights = [
        sketch.weights(channels, hidden),
        sketch.vector(hidden),
        sketch.weights(hidden, channels),
        sketch.vector(channels),
    ]
    y = sketch("SqueezeExcite", x, *weights, activation=activation, gate=gate)
    check(sketch.done(sketch.conv(y, 8, 1)), kind)


def steps(graph, kind):
    format_ = BFloat16() if kind == "bfloat16" else None
    return lower(graph, dict.fromkeys(storable(graph), format_), OPERATIONS).program.names


@pytest.mark.parametrize("channels", [2, 16, 24, 40, 130])
@pytest.mark.parametrize("into", [1, 16, 35, 80])
@pytest.mark.parametrize("stride", [1, 2])
def test_the_reader_of_squeeze_excite_multiplies_its_weights(
    check, kind, sketch, channels, into, stride
):
    x = sketch.conv(sketch.input(1, 3, 10, 9), channels)
    y = sketch.conv(sketch.squeeze_excite(x, 4), into, 1, strides=[stride, stride])
    graph = sketch.done(sketch("Relu", y))
    check(graph, kind, room=2)
    if kind != "bytes":
        assert "gate" not in steps(graph, kind)


@pytest.mark.parametrize("other", ["reader", "output", "window", "more weights", "batch"])
def test_other_readers_of_squeeze_excite_take_its_result(check, kind, sketch, other):
    x = sketch.conv(sketch.input(2 if other == "batch" else 1, 3, 6, 5), 24)
    gated = sketch.squeeze_excite(x, 4)
    into = 31 if other == "more weights" else 8
    outputs = [sketch.conv(gated, into, 3 if other == "window" else 1)]
    if other == "reader":
        outputs.append(sketch.conv(gated, 8, 1))
    if other == "output":
        outputs.append(gated)
    graph = sketch.done(*outputs)
    check(graph, kind, room=2)
    if kind != "bytes":
        assert "gate" in steps(graph, kind)


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("keep", [0, 1])
def test_mean_of_pictures(check, sketch, channels, keep):
    x = sketch.input(3, channels, 5, 3)
    means = [sketch("GlobalAveragePool", x), sketch("ReduceMean", x, axes=[2, 3], keepdims=keep)]
    check(sketch.done(*means), "float32")


@pytest.mark.parametrize("axes", [[-1, -2], [3, 2]])
def test_mean_over_named_axes(check, kind, sketch, axes):
    x = sketch.input(2, 24, 5, 3)
    y = sketch("ReduceMean", x, axes=axes, keepdims=0)
    check(sketch.done(sketch.linear(y, 10)), kind)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("op", "extra"),
    [
        ("MaxPool", {}),
        ("AveragePool", {"count_include_pad": 0}),
        ("AveragePool", {"count_include_pad": 1}),
    ],
    ids=str,
)
@pytest.mark.parametrize("channels", [3, 16, 17, 100])
@pytest.mark.parametrize(
    "more",
    [
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 3], "pads": [1, 0, 2, 1]},
        {"kernel_shape": [1, 5], "strides": [1, 3], "pads": [0, 2, 0, 2]},
        {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"},
        {"kernel_shape": [2, 2], "auto_pad": "VALID"},
        {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]},
    ],
    ids=str,
)
def test_pooling(check, kind, sketch, op, extra, channels, more):
    padded = "pads" in more or str(more.get("auto_pad")).startswith("SAME")
    uncounted = kind == "bytes" and bool(extra.get("count_include_pad")) and padded
    x = sketch.input(2, channels, 7, 8)
    y = sketch("Tanh", x)
    pooled = sketch(op, y, **more, **extra)
    check(sketch.done(sketch.conv(pooled, 16, 1)), kind, or_refused=uncounted)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("kernel", [2, 3, 5])
@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("size", [(7, 8), (6, 5), (4, 4)])
def test_pooling_whose_last_windows_are_cut(check, kind, sketch, op, kernel, stride, size):
    """The shortcuts of ResNet-D have such poolings if sides are odd."""
    x = sketch("Tanh", sketch.input(2, 24, *size))
    more = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "ceil_mode": 1}
    check(sketch.done(sketch.conv(sketch(op, x, **more), 16, 1)), kind, or_refused=kernel < stride)


@pytest.mark.parametrize("kind", ["float32", "bytes", "bfloat16"])
def test_pooling_that_is_given_and_read(check, sketch, kind):
    x = sketch.conv(sketch.input(1, 16, 6, 6), 24)
    pooled = sketch("MaxPool", x, kernel_shape=[2, 2])
    check(sketch.done(pooled, sketch.conv(pooled, 16)), kind)


def test_dilated_pooling(check, kind, sketch):
    x = sketch.input(2, 16, 9, 9)
    pooled = sketch("MaxPool", x, kernel_shape=[2, 2], dilations=[2, 2])
    check(sketch.done(sketch.conv(pooled, 16, 1)), kind, or_refused=True)
