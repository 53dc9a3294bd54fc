"""Graphs that OpenVINO refuses or computes wrongly unless they are changed first."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from slipstream.errors import UnsupportedError
from slipstream.infer.engines import ENGINES, Recipe
from slipstream.infer.engines.onnxruntime import plain_session
from slipstream.infer.importers import load_model
from slipstream.infer.rewrites import optimise

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def model_of(nodes, inputs, outputs, constants=None, opset=27):
    graph = helper.make_graph(
        [helper.make_node(op, reads, writes, **more) for op, reads, writes, more in nodes],
        "graph",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def check(model, feeds):
    """Check that OpenVINO's outputs are those of plain ONNX Runtime."""
    graph, _ = optimise(load_model(model).graph)
    made = ENGINES["openvino"].prepare(graph, Recipe(engine="openvino"), 1)
    found = made.run(feeds)
    for name, right in plain_session(model, 1).run(feeds).items():
        assert (found[name].dtype, found[name].shape) == (right.dtype, right.shape)
        np.testing.assert_allclose(found[name], right, rtol=1e-5, atol=1e-6)
    made.close()


@pytest.fixture(autouse=True)
def newest_operators(monkeypatch):
    monkeypatch.setenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("reader", ["IsInf", "Equal"])
def test_a_maximum_of_minus_infinities_that_is_compared(random, reader, keepdims):
    """Attention asks so whether a mask hides a whole row."""
    compared = ["maximum"] if reader == "IsInf" else ["maximum", "lowest"]
    axes = [1] if keepdims else [0, 2]
    shape = [3, 1, 5] if keepdims else [4]
    model = model_of(
        [
            ("ReduceMax", ["x", "axes"], ["maximum"], {"keepdims": keepdims}),
            (reader, compared, ["is_hidden"], {}),
            ("Where", ["is_hidden", "nothing", "maximum"], ["y"], {}),
        ],
        [("x", FLOAT, [3, 4, 5])],
        [("y", FLOAT, shape), ("maximum", FLOAT, shape), ("is_hidden", BOOL, shape)],
        {
            "axes": np.array(axes, np.int64),
            "lowest": np.array(-np.inf, np.float32),
            "nothing": np.array(7, np.float32),
        },
        opset=20,
    )
    x = random.standard_normal((3, 4, 5)).astype(np.float32)
    x[1], x[:, 2] = -np.inf, -np.inf
    x[2, :, 3] = -np.inf
    check(model, {"x": x})


def test_a_maximum_of_integers_that_is_compared(random):
    model = model_of(
        [("ReduceMax", ["x"], ["maximum"], {}), ("Equal", ["x", "maximum"], ["y"], {})],
        [("x", INT64, [3, 4])],
        [("y", BOOL, [3, 4])],
        opset=20,
    )
    check(model, {"x": random.integers(-9, 9, (3, 4))})


@pytest.mark.parametrize("names", [("x", "z"), ("z", "x")])
def test_an_input_that_passes_through_keeps_its_name(random, names):
    """OpenVINO calls such an input by the name of the result."""
    model = model_of(
        [("Dropout", [names[0]], ["y"], {}), ("Add", [names[1], "y"], ["sum"], {})],
        [(name, FLOAT, [2, 3]) for name in names],
        [("y", FLOAT, [2, 3]), ("sum", FLOAT, [2, 3])],
        opset=13,
    )
    feeds = {name: random.standard_normal((2, 3)).astype(np.float32) for name in names}
    check(model, feeds)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_cache_of_keys_is_written_at_its_positions(random, mode, is_first):
    first = 0 if mode == "linear" else 6
    model = model_of(
        [("TensorScatter", ["cache", "update", *(["at"] if is_first else [])], ["y"],
          {"mode": mode})],
        [("cache", FLOAT, [2, 3, 8, 4]), ("update", FLOAT, [2, 3, 2, 4]),
         *([("at", INT64, [2])] if is_first else [])],
        [("y", FLOAT, [2, 3, 8, 4])],
        opset=24,
    )  # fmt: skip
    feeds = {
        "cache": random.standard_normal((2, 3, 8, 4)).astype(np.float32),
        "update": random.standard_normal((2, 3, 2, 4)).astype(np.float32),
    }
    if is_first:
        feeds["at"] = np.array([first, first + 1], np.int64)
    check(model, feeds)


def test_operators_of_classical_models(random):
    model = model_of(
        [
            ("ArrayFeatureExtractor", ["x", "at"], ["chosen"], {"domain": "ai.onnx.ml"}),
            ("Binarizer", ["chosen"], ["y"], {"domain": "ai.onnx.ml", "threshold": 0.25}),
        ],
        [("x", FLOAT, [5, 6])],
        [("chosen", FLOAT, [5, 3]), ("y", FLOAT, [5, 3])],
        {"at": np.array([4, 0, 3], np.int64)},
        opset=20,
    )
    check(model, {"x": random.standard_normal((5, 6)).astype(np.float32)})


def test_float8_beyond_its_range_is_refused_by_name():
    model = model_of(
        [("Cast", ["x"], ["y"], {"to": TensorProto.FLOAT8E4M3FN})],
        [("x", FLOAT, [2])],
        [("y", TensorProto.FLOAT8E4M3FN, [2])],
        opset=21,
    )
    with pytest.raises(UnsupportedError, match="numbers beyond the range of float8"):
        ENGINES["openvino"].prepare(load_model(model).graph, Recipe(engine="openvino"), 1)
