"""Transposes of images move on behind what follows, and cancel."""

from __future__ import annotations

import numpy as np
import pytest

RANDOM = np.random.default_rng(8)
WEIGHT = RANDOM.standard_normal((4, 4, 1, 1))
CONV = """
    c{0} = Transpose<perm=[0,3,1,2]>({1}) d{0} = Conv(c{0}, w) {2} = Transpose<perm=[0,2,3,1]>(d{0})
"""


@pytest.fixture
def between(build, rewritten):
    """Return the rewritten nodes that make y of x, between convolutions with channels last."""

    def run(body, inputs="float[1,5,6,4] image", **constants):
        first, last = CONV.format(0, "image", "x"), CONV.format(1, "y", "z")
        text = f"({inputs}) => (float[a,b,c,d] z) {{ {first} {body} {last} }}"
        return rewritten(build(text, w=WEIGHT, **constants))

    return run


@pytest.mark.parametrize(
    "body",
    [
        "y = Relu(x)",
        "s = Sigmoid(x) y = Mul(x, s)",
        "t = Tanh(x) y = Add(x, t)",
        "y = Add(x, bias)",
        "y = Mul(scalar, x)",
        "y = Max(x, map)",
        "y = Clip(x, low, high)",
        "y = Softmax<axis=3>(x)",
        "y = LogSoftmax<axis=1>(x)",
        "y = Pad(x, pads)",
        "y = Slice(x, starts, ends, axes)",
        "m = ReduceMean<axes=[1,2]>(x) y = Mul(x, m)",
        "m = ReduceMean<axes=[1,2], keepdims=0>(x) g = Gemm(m, square) "
        "r = Reshape(g, gate) s = Sigmoid(r) y = Mul(x, s)",
        "m = ReduceMax<axes=[3]>(x) y = Sub(x, m)",
        "m = ReduceSum(x, last) y = Div(x, m)",
        "b = Greater(x, scalar) y = Where(b, x, bias)",
        "p, q = Split<axis=3>(x, halves) n = Neg(q) y = Concat<axis=3>(p, n)",
        "t = Transpose<perm=[0,3,1,2]>(x) m = MaxPool<kernel_shape=[2,2]>(t) "
        "y = Transpose<perm=[0,2,3,1]>(m)",
    ],
)
def test_images_are_transposed_only_at_the_ends(body, between):
    outcome = between(
        body,
        bias=RANDOM.standard_normal(4),
        scalar=np.float32(0.5),
        low=np.float32(-1),
        high=np.float32(1),
        map=RANDOM.standard_normal((5, 6, 1)),
        pads=[0, 1, 0, 0, 0, 2, 3, 0],
        starts=[1, 0],
        ends=[4, 3],
        axes=[1, -2],
        square=RANDOM.standard_normal((4, 4)),
        gate=[1, 1, 1, 4],
        last=[3],
        halves=[1, 3],
    )
    assert outcome.ops.count("Transpose") == 2


def test_values_that_others_read_are_transposed_for_them(build, rewritten):
    graph = build(
        """(float[1,5,6,4] image) => (float[1,5,6,4] y, float[1,5,6,4] z) {
            a = Transpose<perm=[0,3,1,2]>(image) b = Conv(a, w)
            y = Transpose<perm=[0,2,3,1]>(b) r = Relu(y) c = Transpose<perm=[0,3,1,2]>(r)
            d = Conv(c, w) z = Transpose<perm=[0,2,3,1]>(d)
        }""",
        w=WEIGHT,
    )
    assert rewritten(graph).ops.count("Transpose") == 3


def test_other_transposes_stay(build, rewritten):
    graph = build(
        """(float[2,5,6,4] x) => (float[2,6,4,5] y) {
            t = Transpose<perm=[0,2,3,1]>(x) y = Relu(t)
        }"""
    )
    outcome = rewritten(graph)
    assert outcome.graph.nodes[0].op == "Transpose"
    assert "channels-first" not in outcome.matches


def test_an_operand_that_is_no_image_keeps_its_layout(build, rewritten):
    graph = build(
        """(float[1,5,6,4] image, float[1,5,6,4] other) => (float[1,5,6,4] y) {
            a = Transpose<perm=[0,3,1,2]>(image) b = Conv(a, w)
            c = Transpose<perm=[0,2,3,1]>(b) y = Add(c, other)
        }""",
        w=WEIGHT,
    )
    assert "channels-first" not in rewritten(graph).matches


def test_axes_of_slices_keep_their_dtype(between):
    """int32 beside int64 is no ONNX."""
    ends = {name: np.array(value, np.int32) for name, value in SLICED.items()}
    outcome = between("y = Slice(x, starts, ends, axes)", **ends)
    assert sum(node.op == "Transpose" for node in outcome.graph.nodes) == 2


SLICED = {"starts": [1, 0], "ends": [4, 5], "axes": [1, 2]}


def test_a_constant_of_more_dimensions_stays(build, rewritten):
    graph = build(
        """(float[1,4,5,6] x) => (float[a,b,c,d,e] y) {
            c = Conv(x, w) t = Transpose<perm=[0,2,3,1]>(c) y = Add(t, one)
        }""",
        w=WEIGHT,
        one=np.ones((1, 1, 1, 1, 1), np.float32),
    )
    assert rewritten(graph).graph.shape("y") == (1, 1, 5, 6, 4)
