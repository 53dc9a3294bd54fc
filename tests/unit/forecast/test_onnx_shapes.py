"""Shapes of ONNX models: what follows from constants is computed, and what is drawn is not."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from slipstream.forecast.trace.onnx_batch import Batch
from slipstream.forecast.trace.onnx_graph import ShapedGraph
from slipstream.forecast.trace.onnx_shapes import settle


def settled(*nodes: tuple[str, str, str, dict[str, object]], samples: int = 5) -> ShapedGraph:
    """Return the graph of nodes behind an input x (batch, 4, 6), with `first` 0 and `rest` -1."""
    shape = ["batch", 4, 6]
    graph = helper.make_graph(
        [helper.make_node(op, given.split(), [made], **more) for op, given, made, more in nodes],
        "shapes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1][2], TensorProto.UNDEFINED, None)],
        [
            numpy_helper.from_array(np.array([0]), "first"),
            numpy_helper.from_array(np.array([-1]), "rest"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    return settle(model, Batch(samples=samples))


def test_a_shape_that_is_computed_from_others_is_known():
    graph = settled(
        ("Shape", "x", "sizes", {}),
        ("Gather", "sizes first", "size", {}),
        ("Mul", "size size", "square", {}),
        ("Cast", "square", "cast", {"to": TensorProto.INT64}),
        ("Concat", "size rest", "target", {"axis": 0}),
        ("Reshape", "x target", "rows", {}),
    )
    assert graph.tensors["rows"].shape == (5, 24)
    assert graph.constants["cast"].tolist() == [25]
    assert [each.op for each in graph.nodes] == ["Reshape"]


@pytest.mark.parametrize(
    ("op", "given", "more"),
    [
        ("RandomUniform", "", {"shape": [3]}),
        ("RandomNormalLike", "half", {"dtype": TensorProto.FLOAT}),
        ("Bernoulli", "half", {}),
    ],
)
def test_what_is_drawn_is_no_constant(op: str, given: str, more: dict[str, object]):
    graph = settled(
        ("Constant", "", "half", {"value_floats": [0.5, 0.5, 0.5]}),
        (op, given, "drawn", more),
        ("Neg", "drawn", "end", {}),
    )
    assert graph.tensors["end"].shape == (3,)
    assert not {"drawn", "end"} & set(graph.constants)
    assert [each.op for each in graph.nodes] == [op, "Neg"]
