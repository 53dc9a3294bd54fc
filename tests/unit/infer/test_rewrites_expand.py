"""Operators of ours in those of ONNX."""

from __future__ import annotations

import pytest

from slipstream.infer.graph.graph import SLIPSTREAM
from slipstream.infer.rewrites import expand, optimise


@pytest.fixture
def graph(build, random):
    """Silu and two linear layers, one of them of a matrix."""
    return build(
        """(float[2,3,4] x) => (float[6,5] y) {
            g = Sigmoid(x) s = Mul(x, g) m = MatMul(s, w) a = Add(m, b)
            r = Reshape(a, rows) n = MatMul(r, v) y = Add(n, b)
        }""",
        w=random.random((4, 5)),
        v=random.random((5, 5)),
        b=random.random(5),
        rows=[6, 5],
    )


def test_nothing_of_ours_is_left(graph):
    optimised, _ = optimise(graph)
    expanded = expand(optimised)
    assert {node.domain for node in optimised.nodes} == {"", SLIPSTREAM}
    assert {node.domain for node in expanded.nodes} == {""}
    assert [node.op for node in expanded.nodes] == [
        *("Sigmoid", "Mul", "MatMul", "Add", "Reshape", "Gemm")
    ]
    assert expanded.shape("y") == (6, 5)


def test_kept_operators_stay(graph):
    expanded = expand(optimise(graph)[0], keep=["Silu"])
    ours = [node.op for node in expanded.nodes if node.domain]
    assert ours == ["Silu"]


def test_the_optimised_graph_stays_as_it_is(graph):
    optimised, _ = optimise(graph)
    before = [(node.op, list(node.inputs)) for node in optimised.nodes]
    expand(optimised)
    assert [(node.op, list(node.inputs)) for node in optimised.nodes] == before
