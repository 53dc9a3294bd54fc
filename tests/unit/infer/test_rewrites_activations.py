"""Activations that are written as several operators."""

from __future__ import annotations

import math

import pytest

NUMBERS = {
    "half": 0.5,
    "one": 1.0,
    "three": 3.0,
    "nought": 0.0,
    "six": 6.0,
    "sixth": 1 / 6,
    "root": math.sqrt(2),
    "inverse": math.sqrt(0.5),
    "cubic": 0.044715,
    "scale": math.sqrt(2 / math.pi),
}

SILU = ["g = Sigmoid(x) y = Mul(x, g)", "g = Sigmoid(x) y = Mul(g, x)"]
SIXTH = "HardSigmoid <alpha=0.16666667, beta=0.5>"
HARD_SWISH = [
    f"g = {SIXTH} (x) y = Mul(g, x)",
    "a = Add(x, three) g = Clip(a, nought, six) m = Mul(x, g) y = Div(m, six)",
    "a = Add(three, x) g = Clip(a, nought, six) d = Div(g, six) y = Mul(x, d)",
    "a = Add(x, three) g = Clip(a, nought, six) m = Mul(x, sixth) y = Mul(m, g)",
]
ERF = "e = Erf(a) g = Add(e, one)"
GELU = [
    f"a = Div(x, root) {ERF} m = Mul(x, g) y = Mul(m, half)",
    f"a = Mul(inverse, x) {ERF} m = Mul(half, g) y = Mul(m, x)",
    f"h = Mul(x, half) a = Div(x, root) {ERF} y = Mul(h, g)",
]
TANH = "t = Tanh(a) g = Add(one, t) h = Mul(half, x) y = Mul(h, g)"
TANH_GELU = [
    f"p = Pow(x, three) c = Mul(cubic, p) s = Add(x, c) a = Mul(s, scale) {TANH}",
    f"q = Mul(x, x) p = Mul(q, x) c = Mul(p, cubic) s = Add(c, x) a = Mul(scale, s) {TANH}",
    f"q = Mul(x, x) c = Mul(q, cubic) b = Add(c, one) s = Mul(x, scale) a = Mul(s, b) {TANH}",
]


def written(build, text, *, opset=17, **numbers):
    return build(
        f"(float[2,9] i) => (float[2,9] o) {{ x = Exp(i) {text} o = Neg(y) }}",
        opset=opset,
        **(NUMBERS | numbers),
    )


@pytest.mark.parametrize("text", SILU)
def test_silu(build, rewritten, text):
    assert rewritten(written(build, text)).ops == ["Exp", "Neg", "Silu"]


@pytest.mark.parametrize("text", HARD_SWISH)
def test_hard_swish(build, rewritten, text):
    assert rewritten(written(build, text)).ops == ["Exp", "HardSwish", "Neg"]


@pytest.mark.parametrize("text", GELU)
def test_gelu_by_erf(build, rewritten, text):
    outcome = rewritten(written(build, text))
    assert outcome.ops == ["Exp", "Gelu", "Neg"]
    assert outcome.node("Gelu").get("approximate") == "none"


@pytest.mark.parametrize("text", TANH_GELU)
def test_gelu_by_tanh(build, rewritten, text):
    outcome = rewritten(written(build, text))
    assert outcome.ops == ["Exp", "Gelu", "Neg"]
    assert outcome.node("Gelu").get("approximate") == "tanh"


def test_hard_sigmoid(build, rewritten):
    text = "a = Add(x, three) g = Clip(a, nought, six) y = Div(g, six)"
    assert rewritten(written(build, text)).ops == ["Exp", "HardSigmoid", "Neg"]


def test_layers_do_not_take_a_pattern_apart(build, rewritten, random):
    """The number before the second layer belongs to GELU, that after the first to HardSigmoid."""
    graph = build(
        f"""(float[2,9] i) => (float[2,9] o) {{
            x = MatMul(i, w) {GELU[0]} z = MatMul(y, w)
            b = Add(z, three) c = Clip(b, nought, six) o = Div(c, six)
        }}""",
        w=random.random((9, 9)),
        **NUMBERS,
    )
    assert rewritten(graph).ops == ["Gelu", "HardSigmoid", "Linear", "Linear"]


@pytest.mark.parametrize("name", ["silu", "hard-swish", "gelu"])
def test_left_out(build, rewritten, name):
    text = {"silu": SILU, "hard-swish": HARD_SWISH, "gelu": GELU}[name][0]
    assert name not in rewritten(written(build, text), without=[name]).matches


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (SILU[0].replace("Sigmoid(x)", "Sigmoid(i)"), {}),
        ("g = HardSigmoid(x) y = Mul(g, x)", {}),
        (HARD_SWISH[1], {"six": 5.0}),
        (HARD_SWISH[1], {"three": 3.5}),
        (HARD_SWISH[1], {"nought": 0.5}),
        (GELU[0], {"half": 0.51}),
        (GELU[0], {"root": 1.5}),
        (GELU[0], {"one": 1.1}),
        (TANH_GELU[0], {"cubic": 0.05}),
        (TANH_GELU[0], {"scale": 0.8}),
        (TANH_GELU[1], {"cubic": 0.05}),
        (TANH_GELU[2], {"scale": 0.8}),
    ],
)
def test_other_operands_and_constants_match_nothing(build, rewritten, text, numbers):
    ops = rewritten(written(build, text, **numbers)).ops
    assert not {"Silu", "HardSwish", "Gelu"} & set(ops)


@pytest.mark.parametrize("text", [SILU[0], HARD_SWISH[0], HARD_SWISH[1], GELU[0], TANH_GELU[0]])
def test_inner_values_with_other_readers_match_nothing(build, rewritten, text):
    graph = build(
        f"(float[2,9] i) => (float[2,9] o, float[2,9] g) {{ x = Exp(i) {text} o = Neg(y) }}",
        **NUMBERS,
    )
    assert not {"Silu", "HardSwish", "Gelu"} & set(rewritten(graph).ops)


def test_no_hard_swish_before_onnx_had_it(build, rewritten):
    assert "HardSwish" not in rewritten(written(build, HARD_SWISH[0], opset=13)).ops
