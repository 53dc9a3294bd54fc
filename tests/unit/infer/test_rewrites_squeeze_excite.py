"""Squeeze-and-excitation."""

from __future__ import annotations

import numpy as np
import pytest

SIXTH = "HardSigmoid <alpha=0.16666667, beta=0.5> (b)"
POOL = "p = GlobalAveragePool(x)"
FIRST = "a = Conv(p, w1, b1)"
SECOND = "b = Conv(r, w2, b2)"
CONVS = f"{POOL} {FIRST} r = Relu(a) {SECOND} g = Sigmoid(b) y = Mul(x, g)"


def squeezed(build, random, text, *, image="float[2,8,5,6]", outputs="float[2,8,5,6] y"):
    weights = {"w1": (4, 8, 1, 1), "w2": (8, 4, 1, 1), "m1": (8, 4), "m2": (4, 8)}
    return build(
        f"({image} i) => ({outputs}) {{ x = Exp(i) {text} }}",
        **{name: random.standard_normal(shape) for name, shape in weights.items()},
        b1=random.standard_normal(4),
        b2=random.standard_normal(8),
        flat=[-1, 8],
        square=[-1, 8, 1, 1],
        row=[1, -1],
    )


@pytest.mark.parametrize(
    ("text", "activation", "gate"),
    [
        (CONVS, "Relu", "Sigmoid"),
        (CONVS.replace("Sigmoid(b)", SIXTH), "Relu", "HardSigmoid"),
        (CONVS.replace("r = Relu(a)", "s = Sigmoid(a) r = Mul(a, s)"), "Silu", "Sigmoid"),
        (CONVS.replace("Relu", "HardSwish"), "HardSwish", "Sigmoid"),
        (CONVS.replace("(p, w1, b1)", "(p, w1)").replace(", b2)", ")"), "Relu", "Sigmoid"),
        (CONVS.replace("GlobalAveragePool", "ReduceMean <axes=[2,3]>"), "Relu", "Sigmoid"),
        (
            f"""{POOL} f = Reshape(p, flat) a = MatMul(f, m1) c = Add(a, b1) r = Relu(c)
            b = Gemm(r, m2, b2) s = Sigmoid(b) g = Reshape(s, square) y = Mul(g, x)""",
            "Relu",
            "Sigmoid",
        ),
        (
            """p = ReduceMean <axes=[2,3], keepdims=0> (x) a = Gemm(p, m1, b1) r = Relu(a)
            b = Gemm(r, m2, b2) s = Reshape(b, square) g = Sigmoid(s) y = Mul(g, x)""",
            "Relu",
            "Sigmoid",
        ),
    ],
)
def test_forms(build, rewritten, random, text, activation, gate):
    outcome = rewritten(squeezed(build, random, text))
    assert outcome.ops == ["Exp", "SqueezeExcite"]
    node = outcome.node("SqueezeExcite")
    assert node.attributes == {"activation": activation, "gate": gate}
    shapes = [outcome.graph.shape(name) for name in node.inputs]
    assert shapes == [(2, 8, 5, 6), (8, 4), (4,), (4, 8), (8,)]


def test_batch_of_unknown_size(build, rewritten, random):
    graph = squeezed(build, random, CONVS, image="float[n,8,5,6]", outputs="float[n,8,5,6] y")
    assert rewritten(graph).ops == ["Exp", "SqueezeExcite"]


@pytest.mark.parametrize(
    "text",
    [
        CONVS.replace("GlobalAveragePool(x)", "GlobalAveragePool(i)"),
        CONVS.replace("GlobalAveragePool(x)", "GlobalMaxPool(x)"),
        CONVS.replace("Relu", "Tanh"),
        CONVS.replace("Sigmoid", "Tanh"),
        CONVS.replace("Sigmoid", "HardSigmoid"),
        CONVS.replace(SECOND, "r2 = Concat <axis=1> (r, r) b = Conv <group=2> (r2, w2)"),
    ],
)
def test_other_operators_match_nothing(build, rewritten, random, text):
    assert "SqueezeExcite" not in rewritten(squeezed(build, random, text)).ops


@pytest.mark.parametrize("name", ["p", "a", "r", "b", "g"])
def test_inner_values_that_are_outputs_match_nothing(build, rewritten, random, name):
    graph = squeezed(build, random, CONVS, outputs=f"float[2,8,5,6] y, float[k,l,1,1] {name}")
    assert "SqueezeExcite" not in rewritten(graph).ops


def test_layers_across_samples_match_nothing(build, rewritten, random):
    """The first layer sees half of the channels of a sample at a time."""
    graph = build(
        """(float[1,8,5,6] x) => (float[2,8,5,6] y) {
            p = GlobalAveragePool(x) f = Reshape(p, halves) a = Gemm(f, w1, b1) r = Relu(a)
            b = Gemm(r, w2, b2) s = Reshape(b, square) g = Sigmoid(s) y = Mul(x, g)
        }""",
        w1=random.standard_normal((4, 4)),
        w2=random.standard_normal((4, 8)),
        b1=random.standard_normal(4),
        b2=random.standard_normal(8),
        halves=[2, 4],
        square=[2, 8, 1, 1],
    )
    assert "SqueezeExcite" not in rewritten(graph).ops


def test_left_out(build, rewritten, random):
    outcome = rewritten(squeezed(build, random, CONVS), without=["squeeze-excite"])
    assert "SqueezeExcite" not in outcome.ops


def test_gate_per_pixel_matches_nothing(build, rewritten, random):
    """A gate [8, 1, 1, 8] broadcasts over columns, not over channels."""
    graph = build(
        """(float[1,8,8,8] x) => (float z) {
            p = GlobalAveragePool(x) a = Conv(p, w1, b1) r = Relu(a) b = Conv(r, w2, b2)
            g = Sigmoid(b) h = Reshape(g, turned) y = Mul(x, h) z = ReduceMax <keepdims=0> (y)
        }""",
        w1=random.standard_normal((4, 8, 1, 1)),
        w2=random.standard_normal((8, 4, 1, 1)),
        b1=np.zeros(4),
        b2=np.zeros(8),
        turned=[1, 1, 1, 8],
    )
    assert "SqueezeExcite" not in rewritten(graph).ops
