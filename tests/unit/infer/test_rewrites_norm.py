"""Normalisation written as means and roots."""

from __future__ import annotations

import pytest

CENTRED = "m = ReduceMean <axes=[-1]> (x) d = Sub(x, m)"
VARIANCE = f"{CENTRED} q = Pow(d, two) v = ReduceMean <axes=[-1]> (q) e = Add(v, epsilon)"
LAYER_NORM = f"{VARIANCE} r = Sqrt(e) n = Div(d, r)"
RMS = "q = Mul(x, x) v = ReduceMean <axes=[-1]> (q) e = Add(v, epsilon)"


def written(build, random, text, *, opset=17, outputs="float[2,3,8] y", **constants):
    given = {
        "two": 2.0,
        "one": 1.0,
        "epsilon": 1e-5,
        "gain": random.standard_normal(8),
        "offset": random.standard_normal(8),
    }
    return build(
        f"(float[2,3,8] i) => ({outputs}) {{ x = Exp(i) {text} }}",
        opset=opset,
        **(given | constants),
    )


@pytest.mark.parametrize(
    "text",
    [
        LAYER_NORM,
        VARIANCE.replace("Pow(d, two)", "Mul(d, d)") + " r = Sqrt(e) n = Div(d, r)",
        f"{VARIANCE} r = Sqrt(e) k = Reciprocal(r) n = Mul(d, k)",
        f"{VARIANCE} r = Sqrt(e) k = Div(one, r) n = Mul(k, d)",
        LAYER_NORM.replace("Pow(d, two)", "Pow(d2, two)").replace("q =", "d2 = Sub(x, m) q ="),
    ],
)
def test_layer_norm(build, rewritten, random, text):
    outcome = rewritten(written(build, random, f"{text} s = Mul(gain, n) y = Add(s, offset)"))
    assert outcome.ops == ["Exp", "LayerNormalization"]
    assert outcome.node("LayerNormalization").get("epsilon") == pytest.approx(1e-5)


def test_layer_norm_over_two_axes(build, rewritten, random):
    text = LAYER_NORM.replace("[-1]", "[1,2]")
    graph = written(
        build,
        random,
        f"{text} s = Mul(n, gain) y = Add(s, offset)",
        gain=random.standard_normal((1, 3, 8)),
        offset=random.standard_normal((3, 1)),
    )
    outcome = rewritten(graph)
    assert outcome.ops == ["Exp", "LayerNormalization"]
    assert outcome.node("LayerNormalization").get("axis") == -2


def test_layer_norm_without_scale(build, rewritten, random):
    outcome = rewritten(written(build, random, f"{LAYER_NORM} y = Neg(n)"))
    assert outcome.ops == ["Exp", "LayerNormalization", "Neg"]


def test_layer_norm_with_axes_as_input(build, rewritten, random):
    text = LAYER_NORM.replace("ReduceMean <axes=[-1]> (x)", "ReduceMean(x, last)")
    text = text.replace("ReduceMean <axes=[-1]> (q)", "ReduceMean(q, last)")
    graph = written(build, random, f"{text} y = Mul(n, gain)", opset=18, last=[-1])
    assert rewritten(graph).ops == ["Exp", "LayerNormalization"]


@pytest.mark.parametrize("opset", [17, 18])
def test_rms_norm(build, rewritten, random, opset):
    text = RMS if opset < 18 else RMS.replace("<axes=[-1]> (q)", "(q, last)")
    text += " r = Sqrt(e) k = Div(one, r) n = Mul(x, k) y = Mul(gain, n)"
    outcome = rewritten(written(build, random, text, opset=opset, last=[-1]))
    assert outcome.ops == ["Exp", "RmsNorm"]


def test_rms_norm_over_two_axes(build, rewritten, random):
    text = RMS.replace("[-1]", "[1,2]") + " r = Sqrt(e) y = Div(x, r)"
    outcome = rewritten(written(build, random, text))
    assert outcome.ops == ["Exp", "RmsNorm"]
    assert outcome.node("RmsNorm").get("axis") == -2


@pytest.mark.parametrize(
    "text",
    [
        LAYER_NORM.replace("[-1]> (q)", "[1]> (q)"),
        LAYER_NORM.replace("[-1]", "[1]"),
        LAYER_NORM.replace("Pow(d, two)", "Pow(d, one)"),
        LAYER_NORM.replace("Pow(d, two)", "Mul(d, x)"),
        LAYER_NORM.replace("Div(d, r)", "Div(r, d)"),
    ],
)
def test_other_means_match_nothing(build, rewritten, random, text):
    ops = rewritten(written(build, random, f"{text} y = Neg(n)")).ops
    assert not {"LayerNormalization", "RmsNorm"} & set(ops)


def test_mean_over_another_axis_is_not_taken_for_the_centre(build, rewritten, random):
    text = LAYER_NORM.replace("[-1]> (x)", "[1]> (x)")
    ops = rewritten(written(build, random, f"{text} y = Neg(n)")).ops
    assert ops == ["Exp", "Neg", "ReduceMean", "RmsNorm", "Sub"]


@pytest.mark.parametrize("name", ["q", "v", "e", "r"])
def test_inner_values_that_are_outputs_match_nothing(build, rewritten, random, name):
    graph = written(
        build, random, f"{LAYER_NORM} y = Neg(n)", outputs=f"float[2,3,8] y, float[2,3,k] {name}"
    )
    assert "LayerNormalization" not in rewritten(graph).ops


def test_a_scale_of_other_axes_stays_outside(build, rewritten, random):
    graph = written(build, random, f"{LAYER_NORM} y = Mul(n, gain)", gain=random.random((3, 1)))
    assert rewritten(graph).ops == ["Exp", "LayerNormalization", "Mul"]


def test_unknown_width_matches_nothing(build, rewritten):
    graph = build(
        f"(float[2,k] x) => (float[2,k] y) {{ {LAYER_NORM} y = Neg(n) }}", two=2.0, epsilon=1e-5
    )
    assert "LayerNormalization" not in rewritten(graph).ops


def test_no_layer_norm_before_onnx_had_it(build, rewritten, random):
    graph = written(build, random, f"{LAYER_NORM} y = Neg(n)", opset=16)
    assert "LayerNormalization" not in rewritten(graph).ops


def test_left_out(build, rewritten, random):
    graph = written(build, random, f"{LAYER_NORM} y = Neg(n)")
    outcome = rewritten(graph, without=["layer-norm", "rms-norm"])
    assert "ReduceMean" in outcome.ops
