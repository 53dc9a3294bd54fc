"""Positive numbers that pass through leaky ReLUs, and inverse roots."""

from __future__ import annotations

import pytest

LAYER = "c = Conv <pads=[1,1,1,1]> (x, w)"


def written(build, random, text, **constants):
    given = {
        "w": random.standard_normal((8, 6, 3, 3)),
        "b": random.standard_normal((1, 8, 1, 1)),
        "two": 2.0,
        "minus": -2.0,
        "one": 1.0,
        "pair": [1.0, 2.0],
    }
    inputs = "(float[1,6,5,4] x, float[1,8,1,1] s)"
    return build(f"{inputs} => (float[k,l,i,j] y) {{ {text} }}", **(given | constants))


@pytest.mark.parametrize("bend", ["LeakyRelu <alpha=0.2>", "Relu"])
@pytest.mark.parametrize(
    "middle",
    ["", "d = Add(c, b)", "d = Mul(c, s)", "m = Mul(s, c) d = Add(b, m)"],
)
@pytest.mark.parametrize("product", ["y = Mul(r, two)", "y = Mul(two, r)"])
def test_goes_into_the_layer(build, rewritten, random, bend, middle, product):
    value = "d" if middle else "c"
    outcome = rewritten(written(build, random, f"{LAYER} {middle} r = {bend} ({value}) {product}"))
    assert outcome.matches["positive-factor"] == 1
    ops = [node.op for node in outcome.graph.nodes]
    assert ops.count("Mul") == middle.count("Mul"), ops


@pytest.mark.parametrize(
    "text",
    [
        f"{LAYER} r = Relu(c) y = Mul(r, minus)",
        f"{LAYER} r = Relu(c) y = Mul(r, b)",
        f"{LAYER} r = Tanh(c) y = Mul(r, two)",
        "r = Relu(s) y = Mul(r, two)",
        f"{LAYER} r = Relu(c) z = Mul(r, two) y = Add(r, z)",
        f"{LAYER} d = Mul(c, b) e = Mul(d, s) f = Mul(e, s) r = Relu(f) y = Mul(r, two)",
    ],
)
def test_stays(build, rewritten, random, text):
    outcome = rewritten(written(build, random, text))
    assert "positive-factor" not in outcome.matches


def test_layer_that_others_read_stays(build, rewritten, random):
    text = f"{LAYER} d = Add(c, b) r = Relu(d) z = Mul(r, two) y = Add(c, z)"
    assert "positive-factor" not in rewritten(written(build, random, text)).matches


@pytest.mark.parametrize("inverse", ["y = Div(one, r)", "y = Reciprocal(r)"])
def test_inverse_root(build, rewritten, random, inverse):
    outcome = rewritten(written(build, random, f"q = Mul(s, s) r = Sqrt(q) {inverse}"))
    assert [node.op for node in outcome.graph.nodes] == ["Mul", "InverseRoot"]


@pytest.mark.parametrize("text", ["y = Div(two, r)", "z = Div(one, r) y = Add(z, r)"])
def test_no_inverse_root(build, rewritten, random, text):
    outcome = rewritten(written(build, random, f"q = Mul(s, s) r = Sqrt(q) {text}"))
    assert "inverse-root" not in outcome.matches
