"""What rounded weights shift results by is taken back by biases."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.graph.graph import SLIPSTREAM, Graph, Node, Value
from slipstream.infer.graph.onnx_file import infer_shapes
from slipstream.infer.native.formats import Bytes, Weights
from slipstream.infer.native.runner import Runner
from slipstream.infer.quantize.observe import Histogram
from slipstream.infer.quantize.shifts import shifted, shifts_of


def graph_of(node, shape, result, **constants):
    arrays = {name: np.float32(array) for name, array in constants.items()}
    float32 = np.dtype(np.float32)
    graph = Graph({"x": Value(float32, shape)}, ["y"], [node], arrays, opsets={"": 17})
    graph.values["y"] = Value(float32, result)
    return graph


def rounded(real, axis):
    weights = Weights.quantise(np.moveaxis(real, axis, 0))
    shape = [-1] + [1] * (real.ndim - 1)
    return np.moveaxis(weights.numbers * weights.scale.reshape(shape), 0, axis)


def conv(random, *, group=1, taps=3, bias=True):
    weights = random.standard_normal((8, 8 // group, taps, taps)).astype(np.float32)
    node = Node("Conv", ["x", "w", "b"][: 2 + bias], ["y"], {"group": group})
    return graph_of(node, (1, 8, 5, 5), (1, 8, 3, 3), w=weights, b=random.standard_normal(8))


def of_constant(graph, weights, means):
    """Return the convolution of images that have one colour."""
    group = int(graph.nodes[0].get("group", 1))
    sums = weights.astype(np.float64).sum((2, 3))
    return sums @ means if group == 1 else sums[:, 0] * means


@pytest.mark.parametrize(("group", "taps"), [(1, 1), (1, 3), (8, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_convolutions_of_means_become_exact(random, group, taps, bias):
    graph = conv(random, group=group, taps=taps, bias=bias)
    means, weights = random.random(8) * 9, graph.constants["w"]
    after = shifted(graph, shifts_of(graph, {"x": means}), {"x"})
    own = graph.constants["b"] if bias else np.zeros(8)
    lost = of_constant(graph, weights - rounded(weights, 0), means)
    found = after.constants[after.nodes[0].inputs[2]]
    assert np.abs(lost).max() > 1e-3
    np.testing.assert_allclose(found, own + lost, rtol=1e-4, atol=1e-6)
    assert graph.nodes[0].inputs == ["x", "w", "b"][: 2 + bias]


@pytest.mark.parametrize("form", ["Linear", "Gemm", "transposed"])
def test_matrices_of_means_become_exact(random, form):
    real = random.standard_normal((6, 4)).astype(np.float32)
    is_turned = form == "transposed"
    if form == "Linear":
        node = Node("Linear", ["x", "w", "b"], ["y"], domain=SLIPSTREAM)
    else:
        node = Node("Gemm", ["x", "w", "b"], ["y"], {"transB": int(is_turned)})
    weights = real.T if is_turned else real
    graph = graph_of(node, (2, 6), (2, 4), w=weights, b=random.standard_normal((1, 4)))
    means = random.random(6) * 9
    (shift,) = shifts_of(graph, {"x": means}).values()
    np.testing.assert_allclose(shift, means @ (real - rounded(real, 1)), rtol=1e-4, atol=1e-6)
    assert shifted(graph, {"y": shift}, {"x"}).nodes[0].inputs[2] != "b"


def test_only_those_that_read_bytes_are_shifted(random):
    graph = conv(random)
    shifts = shifts_of(graph, {"x": np.ones(8)})
    for same in (shifted(graph, shifts, set()), shifted(graph, {}, {"x"})):
        assert same.nodes[0].inputs == graph.nodes[0].inputs


@pytest.mark.parametrize(
    "change",
    [
        {"w": np.ones((8, 2, 3, 3))},
        {"w": np.ones((8, 8, 3))},
        {"means": np.ones(4)},
        {"b": np.ones((8, 1))},
        {"b": None},
    ],
)
def test_other_forms_stay_as_they_are(random, change):
    graph = conv(random)
    means = change.pop("means", np.ones(8))
    for name, array in change.items():
        if array is None:
            del graph.constants[name]
        else:
            graph.constants[name] = np.float32(array)
    shifts = shifts_of(graph, {"x": means}) if "b" not in change else {"y": [1.0] * 8}
    assert shifted(graph, shifts, {"x"}).nodes[0].inputs == graph.nodes[0].inputs


@pytest.mark.parametrize("ranged", [{"after"}, {"before"}, {"before", "after"}, set()])
def test_our_kernels_shift_exactly_what_they_round(build, random, ranged):
    weights = [random.standard_normal((8, n, 3, 3)).astype(np.float32) for n in (3, 8)]
    text = """(float[1,3,12,12] x) => (float[1,8,4,4] y) {
        c = Conv(x, w0)
        before = Relu(c)
        after = MaxPool<kernel_shape=[2,2], strides=[1,1]>(before)
        d = Conv<strides=[2,2]>(after, w1)
        y = Relu(d)
    }"""
    graph = infer_shapes(build(text, w0=weights[0], w1=weights[1]))
    given = {"x": random.standard_normal((1, 3, 12, 12)).astype(np.float32)}
    ranges = dict.fromkeys(ranged, (0.0, 20.0))
    formats = {name: Bytes.of_range(*ends) for name, ends in ranges.items()}
    large = {"d": (100.0,) * 8, "y": (100.0,) * 8}  # plain to see
    runs = [Runner(graph, formats, 1, shifts) for shifts in (None, large)]
    plain, moved = (runner.run(given)["y"] for runner in runs)
    is_rounded = any(small.dtype == "int8" for small in runs[0].compiled.small.values())
    assert (np.abs(moved - plain).max() > 50) == is_rounded


def test_a_bias_that_is_one_number_stays(random):
    graph = conv(random)
    graph.constants["b"] = np.float32(3.0)
    assert shifted(graph, {"y": [1.0]}, {"x"}).nodes[0].inputs == ["x", "w", "b"]


def test_means_are_those_of_channels(random):
    images, rows = Histogram(), Histogram()
    given = random.standard_normal((3, 2, 5, 4, 4))
    for sample in given:
        images.widen(sample)
        rows.widen(sample)
    np.testing.assert_allclose(images.means, given.mean((0, 1, 3, 4)))
    text = Histogram()
    tokens = random.standard_normal((3, 1, 7, 6))
    for sample in tokens:
        text.widen(sample)
    np.testing.assert_allclose(text.means, tokens.mean((0, 1, 2)))
