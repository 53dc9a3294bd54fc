"""What our kernels compute of a graph, and what ONNX Runtime does before and after it."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.errors import UnsupportedError
from slipstream.infer.graph.graph import Value
from slipstream.infer.native.operations import OPERATIONS
from slipstream.infer.native.partition import partition
from slipstream.infer.native.runner import Runner


def ops(graph):
    return [] if graph is None else [node.op for node in graph.nodes]


def test_graph_that_is_all_ours(sketch, computes):
    graph = sketch.done(sketch("Silu", sketch.conv(sketch.input(1, 3, 8, 8), 16)))
    parts = partition(graph, OPERATIONS)
    assert (parts.head, parts.tail, ops(parts.body)) == (None, None, ["Conv", "Silu"])
    computes(graph)


def test_look_up_before_and_order_after(sketch, computes):
    """Tokens are looked up in a table before the products; the best results are sorted after."""
    tokens = sketch.input(1, 7)
    sketch.graph.inputs[tokens] = Value(np.dtype(np.int64), (1, 7))
    x = sketch("Gather", sketch.vector(50, 24), tokens)
    y = sketch.linear(sketch("Gelu", sketch.linear(x, 40)), 9)
    best = sketch("TopK", y, sketch.constant([3]), outputs=2, axis=-1)
    graph = sketch.done(best, f"{best}_1", y)
    parts = partition(graph, OPERATIONS)
    assert (ops(parts.head), ops(parts.tail)) == (["Gather"], ["TopK"])
    assert ops(parts.body) == ["Linear", "Gelu", "Linear"]
    computes(graph, {tokens: np.array([[3, 1, 4, 1, 5, 9, 2]])})


@pytest.mark.parametrize("op", ["Erf", "Exp"])
def test_operator_between_products(sketch, computes, op):
    """There are at most three parts, so our kernels do not get the nodes after it either."""
    x = sketch.conv(sketch.input(1, 8, 6, 6), 16)
    graph = sketch.done(sketch.conv(sketch("Relu", sketch(op, x)), 4))
    parts = partition(graph, OPERATIONS)
    assert (ops(parts.body), ops(parts.tail)) == (["Conv"], [op, "Relu", "Conv"])
    computes(graph)


def test_value_that_both_parts_read(sketch, computes):
    x = sketch.conv(sketch.input(1, 8, 6, 6), 16)
    graph = sketch.done(sketch("Mul", sketch("Erf", x), sketch("Relu", x)), x)
    computes(graph)


def test_nothing_is_left(sketch):
    weights = sketch.input(8, 8, 1, 1)
    graph = sketch.done(sketch("Conv", sketch.input(1, 8, 4, 4), weights))
    with pytest.raises(UnsupportedError, match="no product is left"):
        partition(graph, OPERATIONS)


def test_number_that_was_computed(sketch, computes):
    """The number has no dimensions, and our kernels have no such values."""
    x = sketch.input(1, 8, 6, 6)
    low = sketch("ReduceMean", x, keepdims=0)
    graph = sketch.done(sketch("Clip", sketch.conv(x, 16), low))
    computes(graph)


def test_what_is_refused_as_bytes_only(sketch, computes):
    x = sketch.conv(sketch.input(1, 8, 6, 6), 16)
    more = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}
    graph = sketch.done(sketch.conv(sketch("AveragePool", x, **more), 8))
    computes(graph, kind="bytes")


def test_profile_names_steps_and_values(sketch):
    x = sketch.input(1, 8, 6, 6)
    y = sketch.conv(x, 16)
    runner = Runner(sketch.done(sketch("Erf", y)), {}, threads=1)
    steps = runner.profile({x: np.zeros((1, 8, 6, 6), np.float32)})
    assert ("convolution", y) in [(kernel, value) for kernel, value, _ in steps]
    assert all(seconds >= 0 for _, _, seconds in steps)
