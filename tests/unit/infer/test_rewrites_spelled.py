"""Operators that frameworks spell out become one each."""

from __future__ import annotations

import numpy as np
import pytest

SOFTMAX = """(float[2,3,4] x) => (float[2,3,4] y) {{
    m = ReduceMax<axes=[{axis}]>(x) s = Sub(x, m) e = Exp(s) t = ReduceSum(e, axes) {last}
}}"""


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_softmax(axis, build, rewritten):
    text = SOFTMAX.format(axis=axis, last="y = Div(e, t)")
    outcome = rewritten(build(text, axes=[axis]))
    assert outcome.ops == ["Softmax"]
    assert outcome.node("Softmax").get("axis") == axis % 3


def test_log_softmax(build, rewritten):
    text = SOFTMAX.format(axis=-1, last="l = Log(t) y = Sub(s, l)")
    assert rewritten(build(text, axes=[-1])).ops == ["LogSoftmax"]


@pytest.mark.parametrize(
    ("last", "axes"), [("y = Div(e, t)", [1]), ("y = Div(s, t)", [2]), ("y = Div(t, e)", [2])]
)
def test_what_is_not_quite_softmax_stays(last, axes, build, rewritten):
    text = SOFTMAX.format(axis=2, last=last)
    assert "Softmax" not in rewritten(build(text, axes=axes)).ops


@pytest.mark.parametrize(
    ("body", "shape", "ops"),
    [
        ("s = ReduceSum(x, axes) y = Div(s, count)", "2,1,1", ["ReduceMean"]),
        ("s = ReduceSum<keepdims=0>(x, axes) y = Mul(share, s)", "2", ["ReduceMean"]),
        (
            "s = ReduceSum(x, axes) r = Reshape(s, flat) y = Div(r, count)",
            "2",
            ["ReduceMean", "Reshape"],
        ),
        ("s = ReduceSum(x, axes) y = Div(s, wrong)", "2,1,1", ["Mul", "ReduceSum"]),
        ("s = ReduceSum(x, axes) y = Div(count, s)", "2,1,1", ["Div", "ReduceSum"]),
    ],
)
def test_means(body, shape, ops, build, rewritten):
    graph = build(
        f"(float[2,3,4] x) => (float[{shape}] y) {{ {body} }}",
        axes=[1, 2],
        flat=[2],
        count=np.float32(12),
        share=np.float32(1 / 12),
        wrong=np.float32(11),
    )
    assert rewritten(graph).ops == ops


@pytest.mark.parametrize("body", ["y = Min(r, six)", "y = Min(six, r)"])
def test_clipping(body, build, rewritten):
    graph = build(f"(float[9] x) => (float[9] y) {{ r = Relu(x) {body} }}", six=np.float32(6))
    assert rewritten(graph).ops == ["Clip"]


def test_gelu_by_the_complement_of_erf(build, rewritten):
    graph = build(
        """(float[2,8] x) => (float[2,8] y) {
            h = Mul(half, x) n = Neg(x) s = Mul(n, root) e = Erf(s) c = Sub(one, e) y = Mul(h, c)
        }""",
        half=np.float32(0.5),
        one=np.float32(1),
        root=np.float32(np.sqrt(0.5)),
    )
    assert rewritten(graph).ops == ["Gelu"]
