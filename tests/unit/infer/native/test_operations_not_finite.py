"""NaN and infinity pass through our kernels as IEEE 754 has it, and as ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import pytest

# A quiet NaN, and one whose bits are all set, as those of memory that nobody wrote often are.
NANS = np.array([0x7FC00000, 0xFFFFFFFF], np.uint32).view(np.float32)
VALUES = {"nan": NANS[0], "nan of ones": NANS[1], "inf": np.inf, "-inf": -np.inf}
CHANNELS = (5, 16, 24)
ACTIVATIONS = [
    ("Relu", {}),
    ("Silu", {}),
    ("HardSwish", {}),
    ("Sigmoid", {}),
    ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    ("Gelu", {}),
    ("Tanh", {}),
    ("LeakyRelu", {"alpha": 0.3}),
    ("Clip", {}),
]


@pytest.fixture(params=VALUES.values(), ids=VALUES)
def value(request):
    return request.param


@pytest.fixture
def holds(computed):
    """Fail unless NaN and infinity are where ONNX Runtime has them, and nowhere else."""

    def check(graph, kind, value):
        feeds = {
            name: np.random.default_rng(3).standard_normal(item.fixed).astype(np.float32)
            for name, item in graph.inputs.items()
        }
        for array in feeds.values():
            array.reshape(-1)[array.size // 3] = value
        ours, expected = computed(graph, kind, feeds)
        for name, wanted in expected.items():
            for of in (np.isnan, np.isposinf, np.isneginf):
                wrong = of(ours[name]) != of(wanted)
                assert not wrong.any(), f"{ours[name][wrong][:4]}, not {wanted[wrong][:4]}"

    return check


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize(("op", "attributes"), ACTIVATIONS, ids=str)
def test_activations_of_convolutions(holds, sketch, value, kind, channels, op, attributes):
    y = sketch.conv(sketch.input(2, channels, 5, 4), 24, 3)
    holds(sketch.done(sketch.activated(y, op, attributes)), kind, value)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize(("op", "attributes"), ACTIVATIONS, ids=str)
def test_activations_that_a_convolution_reads(holds, sketch, value, kind, op, attributes):
    """They are written as bfloat16."""
    y = sketch.activated(sketch.input(2, 24, 5, 4), op, attributes)
    holds(sketch.done(sketch.conv(y, 16, 1)), kind, value)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("parts", [(16, 16), (3, 5), (4, 6)], ids=str)
def test_parts_of_a_split_stay_apart(holds, sketch, value, kind, parts):
    x = sketch("LeakyRelu", sketch.input(2, sum(parts), 5, 4))
    first = sketch("Split", x, sketch.constant(parts), outputs=2, axis=1)
    holds(sketch.done(*[sketch.conv(name, 16, 1) for name in (first, f"{first}_1")]), kind, value)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "dynamic"])
@pytest.mark.parametrize("then", ["Softmax", "LayerNormalization"])
def test_rows_of_text(holds, sketch, value, kind, then):
    y = sketch.linear(sketch.input(2, 5, 72), 40)
    more = [sketch.vector(40), sketch.vector(40)] if then == "LayerNormalization" else []
    holds(sketch.done(sketch(then, y, *more)), kind, value)


@pytest.mark.parametrize("columns", [1, 15, 16, 17, 40])
def test_softmax(holds, sketch, value, columns):
    holds(sketch.done(sketch("Softmax", sketch.input(2, 3, columns), axis=-1)), "float32", value)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_attention(holds, sketch, value, kind):
    x = sketch.linear(sketch.input(2, 7, 24), 96)
    q = sketch("Split", x, sketch.constant([32, 32, 32]), outputs=3, axis=-1)
    holds(sketch.done(sketch("Attention", q, f"{q}_1", f"{q}_2", heads=2, scale=0.25)), kind, value)


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("at", [0, 1, 3, 8])
def test_greatest_of_windows(computed, sketch, value, channels, at):
    """NaN wherever a window has one; what ONNX Runtime has there follows from its place."""
    x = sketch.input(1, channels, 3, 3)
    graph = sketch.done(sketch("MaxPool", x, kernel_shape=[2, 2], strides=[1, 1]))
    feed = np.random.default_rng(3).standard_normal((1, channels, 3, 3)).astype(np.float32)
    feed[0, 2].reshape(-1)[at] = value
    ours, _ = computed(graph, "float32", {x: feed})
    windows = np.lib.stride_tricks.sliding_window_view(feed, (2, 2), (2, 3))
    np.testing.assert_array_equal(ours[graph.outputs[0]], windows.max((-2, -1)))


@pytest.mark.parametrize("op", ["GlobalAveragePool", "AveragePool"])
def test_means(holds, sketch, value, op):
    more = {"kernel_shape": [2, 2]} if op == "AveragePool" else {}
    holds(sketch.done(sketch(op, sketch.input(1, 24, 5, 4), **more)), "float32", value)


def test_factors(holds, sketch, value):
    """The factor is one number per channel."""
    x, gate = sketch.input(1, 24, 5, 4), sketch.input(1, 24, 1, 1)
    holds(sketch.done(sketch("Mul", x, gate)), "float32", value)
