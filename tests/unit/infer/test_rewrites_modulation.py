"""Modulated convolutions."""

from __future__ import annotations

import pytest

STYLED = "u = Unsqueeze(s, axes) m = Mul(w, u)"
DEMODULATED = """
    q = Mul(m, m) t = ReduceSum <keepdims=1> (q, inner) e = Add(t, epsilon)
    r = Sqrt(e) d = Div(one, r) n = Mul(m, d)
"""
CONV = "k = Reshape(n, kernel) y = Conv <pads=[1,1,1,1]> (x, k)"
UP = """
    v = Transpose <perm=[0,2,1,3,4]> (n) k = Reshape(v, up)
    y = ConvTranspose <strides=[2,2]> (x, k)
"""
PLAIN = STYLED.replace("m = Mul", "n = Mul")


def written(
    build, random, text, *, outputs="float[k,l,i,j] y", image="1,6,5,5", style="1,6", **constants
):
    given = {
        "w": random.standard_normal((8, 6, 3, 3)),
        "axes": [1, 3, 4],
        "inner": [2, 3, 4],
        "epsilon": 1e-8,
        "one": 1.0,
        "two": 2.0,
        "kernel": [8, 6, 3, 3],
        "up": [6, 8, 3, 3],
    }
    return build(
        f"(float[{image}] x, float[{style}] s) => ({outputs}) {{ {text} }}", **(given | constants)
    )


@pytest.mark.parametrize(("conv", "op"), [(CONV, "Conv"), (UP, "ConvTranspose")])
@pytest.mark.parametrize("weights", [PLAIN, STYLED + DEMODULATED])
def test_weights_become_constant(build, rewritten, random, conv, op, weights):
    outcome = rewritten(written(build, random, f"{weights} {conv}"))
    assert outcome.node(op).inputs[1] in outcome.graph.constants
    assert outcome.matches["modulated-conv"] == 1


@pytest.mark.parametrize(
    "weights",
    [
        (STYLED + DEMODULATED).replace("Mul(w, u)", "Mul(u, w)").replace("(m, d)", "(d, m)"),
        (STYLED + DEMODULATED).replace("Mul(m, m)", "Pow(m, two)"),
        (STYLED + DEMODULATED).replace("d = Div(one, r)", "d = Reciprocal(r)"),
        STYLED
        + """q = Mul(m, m) t = ReduceSum <keepdims=0> (q, inner) e = Add(t, epsilon)
        r = Sqrt(e) d0 = Div(one, r) d = Reshape(d0, back) n = Mul(m, d)""",
    ],
)
def test_forms(build, rewritten, random, weights):
    graph = written(build, random, f"{weights} {CONV}", back=[1, 8, 1, 1, 1])
    assert rewritten(graph).matches["modulated-conv"] == 1


@pytest.mark.parametrize("weights", [PLAIN, STYLED + DEMODULATED])
def test_bias_is_added_after_all(build, rewritten, random, weights):
    text = f"{weights} {CONV.replace('(x, k)', '(x, k, bias)')}"
    graph = written(build, random, text, bias=random.random(8))
    assert rewritten(graph).matches["modulated-conv"] == 1


def test_batches_share_the_style(build, rewritten, random):
    graph = written(build, random, f"{STYLED} {DEMODULATED} {CONV}", image="2,6,5,5")
    assert rewritten(graph).matches["modulated-conv"] == 1


@pytest.mark.parametrize(
    "text",
    [
        # The style is of output channels.
        PLAIN.replace("axes", "outer") + CONV,
        # Normalised over output channels.
        (STYLED + DEMODULATED).replace("inner", "wrong") + CONV,
        # Square roots, not their inverses.
        (STYLED + DEMODULATED).replace("Div(one, r)", "Identity(r)") + CONV,
        # A computed bias.
        PLAIN + "z = Gemm(s, turn) b = Squeeze(z)" + CONV.replace("(x, k)", "(x, k, b)"),
        # Groups.
        PLAIN + "k = Reshape(n, grouped) y = Conv <group=2> (x, k)",
    ],
)
def test_other_weights_stay_computed(build, rewritten, random, text):
    graph = written(
        build,
        random,
        text,
        style="1,8" if "outer" in text else "1,6",
        outer=[2, 3, 4],
        wrong=[1, 3, 4],
        turn=random.random((6, 8)),
        grouped=[16, 3, 3, 3],
    )
    assert "modulated-conv" not in rewritten(graph).matches


def test_a_style_for_each_sample_stays(build, rewritten, random):
    text = PLAIN + "k = Reshape(n, both) z = Concat <axis=1> (x, x) y = Conv <group=2> (z, k)"
    graph = written(build, random, text, style="2,6", both=[16, 6, 3, 3])
    assert "modulated-conv" not in rewritten(graph).matches


@pytest.mark.parametrize("name", ["n", "k"])
def test_weights_that_are_outputs_stay_computed(build, rewritten, random, name):
    text = f"{STYLED} {DEMODULATED} {CONV}"
    shape = "float[1,8,6,3,3]" if name == "n" else "float[8,6,3,3]"
    graph = written(build, random, text, outputs=f"float[1,8,5,5] y, {shape} {name}")
    assert "modulated-conv" not in rewritten(graph).matches


def test_left_out(build, rewritten, random):
    graph = written(build, random, f"{PLAIN} {CONV}")
    outcome = rewritten(graph, without=["modulated-conv"])
    assert outcome.node("Conv").inputs[1] not in outcome.graph.constants
