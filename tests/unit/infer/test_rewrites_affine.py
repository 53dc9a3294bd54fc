"""Linear layers, and the scales and shifts that they take in."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.rewrites import optimise

BATCH_NORM = "BatchNormalization <epsilon=0.01>"


def norm_constants(random, channels):
    names = ("gain", "offset", "mean", "variance")
    return {name: 0.5 + random.random(channels) for name in names}


# ---- linear layers ----------------------------------------------------------------------------


def test_matmul_and_bias_become_a_linear_layer(build, rewritten, random):
    graph = build(
        "(float[2,3,4] x) => (float[2,3,5] y) { m = MatMul(x, w) y = Add(b, m) }",
        w=random.random((4, 5)),
        b=random.random(5),
    )
    layer = rewritten(graph).node("Linear")
    assert (layer.domain, len(layer.inputs)) == ("slipstream", 3)


@pytest.mark.parametrize("bias", [(5,), (1, 5), (1,), ()])
@pytest.mark.parametrize("turned", [0, 1])
def test_gemm_becomes_a_linear_layer(build, rewritten, random, bias, turned):
    graph = build(
        f"(float[3,4] x) => (float[3,5] y) {{"
        f" y = Gemm <alpha=0.5, beta=2.0, transB={turned}> (x, w, b) }}",
        w=random.random((5, 4) if turned else (4, 5)),
        b=random.random(bias),
    )
    outcome = rewritten(graph)
    assert outcome.ops == ["Linear"]
    assert [outcome.graph.shape(name) for name in outcome.node("Linear").inputs[1:]] == [
        (4, 5),
        (5,),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "y = Gemm(x, x, b)",
        "y = Gemm <transA=1> (x, w, b)",
        "y = Gemm(x, w, rows)",
        "y = Gemm(x, w, x)",
        "y = MatMul(w, x)",
        "y = MatMul(x, stack)",
    ],
)
def test_other_products_stay(build, rewritten, random, text):
    graph = build(
        f"(float[4,4] x) => (float z) {{ {text} z = ReduceMax <keepdims=0> (y) }}",
        w=random.random((4, 4)),
        b=random.random(4),
        rows=random.random((4, 1)),
        stack=random.random((2, 4, 4)),
    )
    assert "Linear" not in rewritten(graph).ops


@pytest.mark.parametrize("layer", ["Conv(x, w, zeros)", "ConvTranspose(x, w, zeros)"])
def test_bias_of_zeros_is_none(build, rewritten, random, layer):
    graph = build(
        f"(float[1,4,5,5] x) => (float[1,4,5,5] y) {{ y = {layer} }}",
        w=random.random((4, 4, 1, 1)),
        zeros=np.zeros(4),
    )
    (node,) = rewritten(graph).graph.nodes
    assert len(node.inputs) == 2


# ---- batch normalisation ----------------------------------------------------------------------


@pytest.mark.parametrize("layer", ["Conv(x, w)", "Conv(x, w, b)", "Conv <group=2> (x, grouped)"])
def test_batch_norm_goes_into_a_convolution(build, rewritten, random, layer):
    graph = build(
        f"""(float[2,4,5,5] x) => (float[2,6,3,3] y) {{
            c = {layer} y = {BATCH_NORM} (c, gain, offset, mean, variance)
        }}""",
        w=random.random((6, 4, 3, 3)),
        b=random.random(6),
        grouped=random.random((6, 2, 3, 3)),
        **norm_constants(random, 6),
    )
    assert rewritten(graph).ops == ["Conv"]


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_goes_into_a_transposed_convolution(build, rewritten, random, groups):
    graph = build(
        f"""(float[2,4,5,5] x) => (float[2,6,11,11] y) {{
            c = ConvTranspose <strides=[2,2], group={groups}> (x, w)
            y = {BATCH_NORM} (c, gain, offset, mean, variance)
        }}""",
        w=random.random((4, 6 // groups, 3, 3)),
        **norm_constants(random, 6),
    )
    assert rewritten(graph).ops == ["ConvTranspose"]


def test_batch_norm_goes_into_a_linear_layer_of_rows(build, rewritten, random):
    graph = build(
        f"""(float[3,4] x) => (float[3,5] y) {{
            c = MatMul(x, w) y = {BATCH_NORM} (c, gain, offset, mean, variance)
        }}""",
        w=random.random((4, 5)),
        **norm_constants(random, 5),
    )
    assert rewritten(graph).ops == ["Linear"]


def test_batch_norm_over_tokens_does_not_go_into_a_linear_layer(build, rewritten, random):
    graph = build(
        f"""(float[3,5,4] x) => (float[3,5,5] y) {{
            c = MatMul(x, w) y = {BATCH_NORM} (c, gain, offset, mean, variance)
        }}""",
        w=random.random((4, 5)),
        **norm_constants(random, 5),
    )
    assert rewritten(graph).ops == ["Add", "Linear", "Mul"]


def test_batch_norm_of_a_convolution_with_other_readers_is_scale_and_shift(
    build, rewritten, random
):
    graph = build(
        f"""(float[2,4,5,5] x) => (float[2,6,3,3] y, float[2,6,3,3] c) {{
            c = Conv(x, w) y = {BATCH_NORM} (c, gain, offset, mean, variance)
        }}""",
        w=random.random((6, 4, 3, 3)),
        **norm_constants(random, 6),
    )
    outcome = rewritten(graph)
    assert outcome.ops == ["Add", "Conv", "Mul"]
    assert outcome.matches == {"lone-batch-norm": 1}


def test_each_rewrite_can_be_left_out(build, rewritten, random):
    graph = build(
        f"""(float[2,4,5,5] x) => (float[2,6,3,3] y) {{
            c = Conv(x, w) y = {BATCH_NORM} (c, gain, offset, mean, variance)
        }}""",
        w=random.random((6, 4, 3, 3)),
        **norm_constants(random, 6),
    )
    outcome = rewritten(graph, without=["batch-norm", "lone-batch-norm"])
    assert outcome.ops == ["BatchNormalization", "Conv"]


# ---- scales and shifts ------------------------------------------------------------------------

OPERATIONS = ("Add(c, k)", "Add(k, c)", "Sub(c, k)", "Sub(k, c)", "Mul(c, k)", "Div(c, k)")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("shape", [(6, 1, 1), (1, 6, 1, 1), (), (1, 1, 1)])
def test_constants_per_channel_go_into_a_convolution(build, rewritten, random, operation, shape):
    graph = build(
        f"(float[2,4,5,5] x) => (float[2,6,3,3] y) {{ c = Conv(x, w) y = {operation} }}",
        w=random.random((6, 4, 3, 3)),
        k=0.5 + random.random(shape),
    )
    assert rewritten(graph).ops == ["Conv"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("shape", [(5,), (1, 1, 5), ()])
def test_constants_per_channel_go_into_a_linear_layer(build, rewritten, random, operation, shape):
    graph = build(
        f"(float[2,3,4] x) => (float[2,3,5] y) {{ c = MatMul(x, w) y = {operation} }}",
        w=random.random((4, 5)),
        k=0.5 + random.random(shape),
    )
    assert rewritten(graph).ops == ["Linear"]


@pytest.mark.parametrize(
    ("operation", "shape"),
    [
        ("Add(c, k)", (3, 3)),
        ("Mul(c, k)", (6, 3, 3)),
        ("Mul(c, k)", (3, 1)),
        ("Add(c, k)", (2, 1, 1, 1)),
        ("Add(c, k)", (1, 1, 1, 1, 1)),
        ("Div(k, c)", ()),
    ],
)
def test_other_constants_stay_outside(build, rewritten, random, operation, shape):
    graph = build(
        f"""(float[2,4,5,5] x) => (float z) {{
            c = Conv(x, w) y = {operation} z = ReduceMax <keepdims=0> (y)
        }}""",
        w=1 + random.random((6, 4, 3, 3)),
        k=0.5 + random.random(shape),
    )
    assert len(rewritten(graph).ops) == 3


def test_convolution_with_other_readers_stays(build, rewritten, random):
    graph = build(
        """(float[1,4,5,5] x) => (float[1,4,5,5] y) {
            c = Conv(x, w) m = Mul(c, k) r = Relu(c) y = Add(m, r)
        }""",
        w=random.random((4, 4, 1, 1)),
        k=2.0,
    )
    assert rewritten(graph).ops == ["Add", "Conv", "Mul", "Relu"]


def test_computed_weights_stay(build, rewritten, random):
    graph = build(
        """(float[1,4,5,5] x, float[4,4,1,1] w) => (float[1,4,5,5] y) {
            c = Conv(x, w) y = Mul(c, k)
        }""",
        k=2.0,
    )
    assert rewritten(graph).ops == ["Conv", "Mul"]


@pytest.mark.parametrize("layer", ["Conv <pads=[1,1,1,1]> (s, w, b)", "ConvTranspose(s, w)"])
def test_number_before_a_layer_goes_into_it(build, rewritten, random, layer):
    graph = build(
        f"""(float[1,4,5,5] x) => (float z) {{
            r = Relu(x) s = Mul(r, k) y = {layer} z = ReduceMax <keepdims=0> (y)
        }}""",
        w=random.random((4, 4, 3, 3)),
        b=random.random(4),
        k=[2.5],
    )
    assert "Mul" not in rewritten(graph).ops


# ---- arithmetic -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "cheaper"),
    [("Div(x, k)", "Mul"), ("Sub(x, k)", "Add"), ("Pow(x, two)", "Mul"), ("Pow(p, half)", "Sqrt")],
)
def test_cheaper_operators(build, rewritten, random, operation, cheaper):
    graph = build(
        f"(float[2,3] x) => (float[2,3] y) {{ p = Abs(x) y = {operation} }}",
        k=0.5 + random.random(3),
        two=2.0,
        half=0.5,
    )
    assert cheaper in rewritten(graph).ops


@pytest.mark.parametrize("divisor", [0.0, np.inf, 3e38, 1e-45])
def test_divisors_without_an_exact_enough_inverse_stay(build, divisor):
    graph = build("(float[3] x) => (float[3] y) { y = Div(x, k) }", k=divisor)
    assert [node.op for node in optimise(graph)[0].nodes] == ["Div"]


def test_integers_are_still_divided(build, rewritten):
    graph = build("(int64[3] x) => (int64[3] y) { y = Div(x, k) }", k=2)
    assert rewritten(graph).ops == ["Div"]


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_constants_one_after_the_other_become_one(build, rewritten, random, op):
    graph = build(
        f"(float[2,3] x) => (float[2,3] y) {{ a = {op}(k, x) y = {op}(a, l) }}",
        k=random.random(3),
        l=random.random((2, 3)),
    )
    assert rewritten(graph).ops == [op]


def test_constants_that_would_grow_stay_apart(build, rewritten, random):
    graph = build(
        "(float[2,3] x) => (float[2,3] y) { a = Add(k, x) y = Add(a, l) }",
        k=random.random(3),
        l=random.random((2, 1)),
    )
    assert rewritten(graph).ops == ["Add", "Add"]
