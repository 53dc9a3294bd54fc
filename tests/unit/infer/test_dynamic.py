"""Ranges that every call finds, as ONNX writes them."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.errors import UnsupportedError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.engines import ENGINES, Recipe
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.quantize.dynamic import insert_dynamic
from slipstream.infer.quantize.shifts import shifted
from slipstream.infer.rewrites import optimise
from slipstream.infer.search.trial import weights_bytes

TWO = """(float[3,64] x) => (float[3,40] y, float[3,40] z) {{
    y = {0}
    z = MatMul(x, w)
}}"""


@pytest.fixture
def two(build):
    """Return a function that makes a graph of two products of one value."""
    random = np.random.default_rng(3)

    def make(product, first=(64, 40)):
        return build(
            TWO.format(product),
            v=random.standard_normal(first) / 8,
            w=random.standard_normal((64, 40)) / 8,
            b=random.standard_normal(40),
        )

    return make


def decibels(graph, other):
    """Signal to noise of a graph beside another, both by ONNX Runtime."""
    given = {"x": np.random.default_rng(5).standard_normal((3, 64)).astype(np.float32)}
    results = []
    for which in (graph, other):
        executable = ENGINES["onnxruntime"].prepare(which, Recipe(engine="onnxruntime"), 1)
        results.append(executable.run(given))
        executable.close()
    comparison = Comparison()
    comparison.add(*results)
    return comparison.snr_db


@pytest.mark.parametrize(
    ("product", "first"),
    [
        ("Gemm(x, v, b)", (64, 40)),
        ("Gemm(x, v)", (64, 40)),
        ("Gemm <transB=1> (x, v, b)", (40, 64)),
        ("MatMul(x, v)", (64, 40)),
    ],
)
def test_products_become_those_of_bytes(two, product, first):
    graph = two(product, first)
    found = insert_dynamic(graph)
    ops = [node.op for node in found.nodes]
    assert ops.count("DynamicQuantizeLinear") == 1
    assert ops.count("MatMulInteger") == 2
    assert {array.dtype for array in found.constants.values() if array.size > 40} == {
        np.dtype(np.int8)
    }
    assert 30 < decibels(found, graph) < 60
    assert graph.nodes[0].op in ("Gemm", "MatMul")


@pytest.mark.parametrize("product", ["Gemm <alpha=2.0> (x, v, b)", "Gemm <beta=2.0> (x, v, b)"])
def test_products_that_are_more_than_one_stay(two, product):
    graph = two(product)
    found = insert_dynamic(graph)
    assert [node.op for node in found.nodes].count("MatMulInteger") == 1
    assert found.nodes[0].op == "Gemm"
    assert decibels(found, graph) > 30


def test_graphs_without_large_matrices_are_refused(build):
    graph = build("(float[3,4] x) => (float[3,4] y) { y = MatMul(x, w) }", w=np.eye(4))
    with pytest.raises(UnsupportedError, match="needs a product"):
        insert_dynamic(graph)
    for name in ("onnxruntime", "native"):
        with pytest.raises(UnsupportedError, match="needs a product"):
            ENGINES[name].prepare(
                optimise(graph)[0], Recipe(engine=name, precision="int8-dynamic"), 1
            )


def test_biases_of_small_matrices_take_no_shifts(build):
    random = np.random.default_rng(3)
    graph = build(
        """(float[3,64] x) => (float[3,5] y) { h = Gemm(x, v, b) y = Gemm(h, w, c) }""",
        v=random.standard_normal((64, 40)) / 8,
        b=np.zeros(40),
        w=random.standard_normal((40, 5)) / 8,
        c=np.zeros(5),
    )
    found = shifted(graph, {"h": [1.0] * 40, "y": [1.0] * 5})
    assert (found.constants[found.nodes[0].inputs[2]] == 1).all()
    assert (found.constants[found.nodes[1].inputs[2]] == 0).all()


def test_tables_are_no_bytes(build):
    graph = build(
        "(int64[3] x) => (float[3,64] y) { e = Gather(t, x) y = MatMul(e, w) }",
        t=np.ones((500, 64)),
        w=np.ones((64, 64)),
    )
    recipe = Recipe(engine="native", precision="int8-dynamic")
    assert weights_bytes(optimise(graph)[0], recipe) == 500 * 64 * 4 + 64 * 64


def test_the_result_is_valid_onnx(two):
    import onnx

    onnx.checker.check_model(to_model(insert_dynamic(two("Gemm(x, v, b)"))), full_check=True)


def test_weights_are_counted_as_bytes(two):
    graph = optimise(two("MatMul(x, v)"))[0]
    whole = weights_bytes(graph, Recipe(engine="native"))
    assert weights_bytes(graph, Recipe(engine="native", precision="int8-dynamic")) < whole / 2
