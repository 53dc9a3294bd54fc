"""Activations next to the layers that they follow."""

from __future__ import annotations

import pytest


def written(build, random, text):
    return build(
        f"(float[2,3,4,5] x) => (float[k,l,i,j,m] y) {{ {text} }}",
        w=random.standard_normal((12, 3, 1, 1)),
        cut=[2, 3, 4, 4, 5],
        flat=[2, 12, 20],
    )


LAYER = "c = Conv (x, w)"
CUT = "r = Reshape(c, cut) t = Transpose <perm=[0,1,3,4,2]> (r)"


@pytest.mark.parametrize("act", ["Sigmoid", "Relu", "LeakyRelu <alpha=0.3>", "Tanh", "HardSwish"])
@pytest.mark.parametrize("between", [CUT, "t = Reshape(c, cut)"])
def test_goes_to_the_layer(build, rewritten, random, act, between):
    outcome = rewritten(written(build, random, f"{LAYER} {between} y = {act}(t)"))
    assert outcome.matches["activation-first"] == 1
    assert outcome.graph.nodes[1].op == act.split()[0]


@pytest.mark.parametrize(
    "text",
    [
        f"{LAYER} {CUT} a = Sigmoid(t) b = Neg(t) y = Add(a, b)",
        f"{LAYER} n = Abs(c) r = Reshape(n, cut) y = Sigmoid(r)",
        f"{LAYER} r = Reshape(c, cut) s = Softmax <axis=1> (r) y = Sigmoid(s)",
    ],
)
def test_stays(build, rewritten, random, text):
    outcome = rewritten(written(build, random, text))
    assert "activation-first" not in outcome.matches
