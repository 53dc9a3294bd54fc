"""Folding of constants and of arithmetic with shapes."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.rewrites import optimise


def test_nodes_that_read_only_constants_become_constants(build, rewritten, random):
    graph = build(
        "(float[4] x) => (float[4] y) { a = Sqrt(c) b = Add(a, c) y = Add(x, b) }",
        c=random.random(4),
    )
    outcome = rewritten(graph)
    assert outcome.ops == ["Add"]
    assert outcome.matches == {"constants": 2}


def test_division_by_zero_folds_without_a_warning(build):
    graph = build("(float[1] x) => (float[1] y) { a = Div(c, d) y = Add(x, a) }", c=[1.0], d=[0.0])
    result, _ = optimise(graph)
    assert any(np.isinf(array).all() for array in result.constants.values())


def test_an_output_that_is_constant_keeps_its_name(build, rewritten):
    outcome = rewritten(build("(float[2] x) => (float[2] y) { y = Relu(c) }", c=[-1.0, 2.0]))
    assert outcome.ops == ["Identity"]
    assert outcome.graph.outputs == ["y"]


def test_several_outputs_fold_together(build, rewritten, random):
    graph = build(
        "(float[2] x) => (float[2] y) { a, b = Split(c, sizes) d = Mul(x, a) y = Mul(d, b) }",
        c=random.random(4),
        sizes=[2, 2],
    )
    assert rewritten(graph, without=["constant-chains"]).ops == ["Mul", "Mul"]


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("e = ConstantOfShape(s)", {"s": [6000, 6000]}),
        ("e = Expand(c, s)", {"c": [1.0], "s": [6000, 6000]}),
        ("e = Tile(c, s)", {"c": [1.0], "s": [36_000_000]}),
        ("e = Range(a, b, c)", {"a": 0.0, "b": 36e6, "c": 1.0}),
    ],
)
def test_what_would_be_much_larger_is_not_stored(build, text, constants):
    graph = build(
        f"(float[1] x) => (float y) {{ {text} m = ReduceMax <keepdims=0> (e) y = Add(m, x) }}",
        **constants,
    )
    result, _ = optimise(graph)
    assert len(result.nodes) == 3


def test_constant_in_the_type_of_another_value_folds(build, rewritten):
    graph = build("(float[2] x) => (float[2] y) { c = CastLike(k, x) y = Add(x, c) }", k=3)
    assert rewritten(graph).ops == ["Add"]


@pytest.mark.parametrize("op", ["RandomNormalLike", "Bernoulli"])
def test_random_numbers_are_not_folded(build, op):
    graph = build(f"(float[2] x) => (float[2] y) {{ r = {op}(c) y = Add(x, r) }}", c=[0.5, 0.5])
    assert [node.op for node in optimise(graph)[0].nodes] == [op, "Add"]


def test_chain_from_shape_to_reshape_is_gone_where_shapes_are_fixed(build, rewritten):
    graph = build(
        """(float[2,3,4,5] x) => (float[6,20] y) {
            s = Shape(x) a = Slice(s, zero, two) b = Slice(s, two, four)
            pa = ReduceProd <keepdims=1> (a) pb = ReduceProd <keepdims=1> (b)
            t = Concat <axis=0> (pa, pb) y = Reshape(x, t)
        }""",
        zero=[0],
        two=[2],
        four=[4],
    )
    assert rewritten(graph).ops == ["Reshape"]


def test_known_dimensions_of_a_partly_unknown_shape_fold(build, rewritten):
    graph = build(
        """(float[n,4] x) => (float[n,4] y) {
            s = Shape(x) d = Gather(s, one) f = Cast <to=1> (d) y = Mul(x, f)
        }""",
        one=1,
    )
    assert rewritten(graph).ops == ["Mul"]


def test_unknown_dimensions_are_copied_or_implied_by_reshape(build, rewritten):
    graph = build(
        """(float[n,4,6] x) => (float[n,4,2,3] y, float[m] z) {
            s = Shape(x) n0 = Gather(s, zero) n1 = Unsqueeze(n0, axis)
            t = Concat <axis=0> (n1, rest) y = Reshape(x, t)
            all = Concat <axis=0> (minus) z = Reshape(x, all)
        }""",
        zero=0,
        axis=[0],
        rest=[4, 2, 3],
        minus=[-1],
    )
    outcome = rewritten(graph)
    assert outcome.ops == ["Reshape", "Reshape"]
    assert outcome.matches["reshape-targets"] == 1


def test_implied_dimension_is_copied_where_that_says_more(build, rewritten):
    graph = build("(float[n,4,6] x) => (float[n,4,2,3] y) { y = Reshape(x, s) }", s=[-1, 4, 2, 3])
    outcome = rewritten(graph)
    assert outcome.graph.value("y").shape == ("n", 4, 2, 3)
    (target,) = outcome.graph.constants.values()
    assert target.tolist() == [0, 4, 2, 3]


@pytest.mark.parametrize("shape", [[-1, 2, 6], [4, -1, 6], [2, -1, 4]])
def test_implied_dimension_that_is_another_stays_implied(build, rewritten, shape):
    graph = build("(float[n,4,6] x) => (float[k,l,m] y) { y = Reshape(x, s) }", s=shape)
    (target,) = rewritten(graph).graph.constants.values()
    assert target.tolist() == shape


def test_two_unknown_dimensions_in_new_places_stay_computed(build, rewritten):
    graph = build(
        """(float[n,m] x) => (float[m,n] y) {
            s = Shape(x) a = Slice(s, one, two) b = Slice(s, zero, one)
            t = Concat <axis=0> (a, b) y = Reshape(x, t)
        }""",
        zero=[0],
        one=[1],
        two=[2],
    )
    assert "Shape" in rewritten(graph).ops
