"""Arrays of bfloat16, float8 and integers of 4 and 2 bits, from a model's file to its answers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from slipstream import infer
from slipstream.errors import UsageError
from slipstream.infer.engines import ENGINES, Recipe
from slipstream.infer.graph.added_dtypes import (
    DTYPES,
    as_unsigned,
    from_stored_bytes,
    from_unsigned,
    stored_bytes,
)
from slipstream.infer.importers import load_model

STORED = [kind for kind in DTYPES if "FLOAT6" not in TensorProto.DataType.Name(kind)]


def names(kinds):
    return [TensorProto.DataType.Name(kind) for kind in kinds]


def array_of(random, kind, shape):
    """Return an array of all kinds of numbers that the dtype has."""
    bits = 2 if "2" in DTYPES[kind].name[-1:] and "int" in DTYPES[kind].name else 4
    if "int" in DTYPES[kind].name:
        first = 0 if DTYPES[kind].name.startswith("u") else -(2 ** (bits - 1))
        return random.integers(first, first + 2**bits, shape).astype(DTYPES[kind])
    return (2 * random.standard_normal(shape)).astype(DTYPES[kind])


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (4,), (3, 5), (2, 0, 3), (7, 1)])
@pytest.mark.parametrize("kind", STORED, ids=names(STORED))
def test_stored_bytes_are_those_of_onnx(random, kind, shape):
    array = array_of(random, kind, shape)
    stored = stored_bytes(array)
    assert stored.tobytes() == numpy_helper.from_array(array).raw_data
    back = from_stored_bytes(stored, array.dtype, shape)
    assert (back.dtype, back.shape) == (array.dtype, shape)
    np.testing.assert_array_equal(as_unsigned(back), as_unsigned(array))
    again = from_unsigned(as_unsigned(array), str(array.dtype))
    np.testing.assert_array_equal(as_unsigned(again), as_unsigned(array))


def product(kind, weights):
    """Return a model: float32 product of its input with weights, in the type of the input."""
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["wide", "weights"], ["product"]),
        helper.make_node("Cast", ["product"], ["y"], to=kind),
    ]
    inputs, outputs = ([helper.make_tensor_value_info(name, kind, [4, 16])] for name in ("x", "y"))
    graph = helper.make_graph(
        nodes, "product", inputs, outputs, [numpy_helper.from_array(weights, "weights")]
    )
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


@pytest.mark.slow("model of an added dtype")
@pytest.mark.parametrize("name", ["BFLOAT16", "FLOAT8E5M2", "INT4"])
def test_the_whole_way_from_a_model_to_answers(random, tmp_path, name):
    kind = TensorProto.DataType.Value(name)
    weights = np.eye(16, dtype=np.float32)
    path = tmp_path / "model.slip"
    infer.compile(product(kind, weights), path, infer.CompileOptions(seconds=0.5, threads=1))
    x = array_of(random, kind, (4, 16))
    with infer.load(path) as model:
        y = model(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(as_unsigned(y), as_unsigned(x))


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_an_engine_rounds_as_numpy_does(random, engine):
    weights = random.standard_normal((16, 16)).astype(np.float32)
    graph = load_model(product(TensorProto.BFLOAT16, weights)).graph
    made = ENGINES[engine].prepare(graph, Recipe(engine=engine), 1)
    x = array_of(random, TensorProto.BFLOAT16, (4, 16))
    found = made.run({"x": x})["y"]
    exact = x.astype(np.float64) @ weights
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=2**-8, atol=1e-5)
    made.close()


def test_another_dtype_is_an_error_that_names_both(tmp_path):
    path = tmp_path / "model.slip"
    model = product(TensorProto.BFLOAT16, np.eye(16, dtype=np.float32))
    infer.compile(model, path, infer.CompileOptions(seconds=0.2, threads=1))
    with (
        infer.load(path) as loaded,
        pytest.raises(UsageError, match="is float32, and has to be bfloat16"),
    ):
        loaded(np.zeros((4, 16), np.float32))
