"""Padding goes into what reads it, where that computes the same."""

from __future__ import annotations

import numpy as np
import pytest

PADS = [0, 0, 1, 0, 0, 0, 2, 1]
CHANNEL = [0, 1, 1, 1, 0, 0, 1, 1]
CONV = "y = Conv<pads=[0,1,1,0], strides=[2,1]>(p, w)"
POOL = "y = MaxPool<kernel_shape=[3,3]>(p)"


@pytest.fixture
def padded(build, rewritten):
    """Return the nodes that read a padded image after the rewrite."""

    def run(body, pads=None, value=0.0, inputs="float[1,2,7,6] x"):
        graph = build(
            f"({inputs}) => (float[1,c,h,w] y) {{ {body} }}",
            pads=PADS if pads is None else pads,
            value=np.float32(value),
            w=np.random.default_rng(1).standard_normal((4, 2, 3, 3)),
        )
        return rewritten(graph)

    return run


def test_zeros_go_into_convolutions(padded):
    outcome = padded(f"p = Pad(x, pads, value) {CONV}")
    assert outcome.ops == ["Conv"]
    assert outcome.node("Conv").get("pads") == [1, 1, 3, 1]


def test_zeros_after_relu_go_into_maxima(padded):
    outcome = padded(f"r = Relu(x) p = Pad(r, pads) {POOL}")
    assert outcome.ops == ["MaxPool", "Relu"]


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (f"p = Pad(x, pads, value) {CONV}", {"value": 0.5}),
        (f'p = Pad<mode="reflect">(x, pads) {CONV}', {}),
        (
            f"p = Pad(x, pads) {CONV}",
            {"inputs": "float[1,1,7,6] x", "pads": [0, 1, 1, 1, 0, 0, 1, 1]},
        ),
        (f"p = Pad(x, pads) {CONV}", {"pads": [0, 0, -1, 1, 0, 0, 1, 1]}),
        (f"p = Pad(x, pads) {POOL}", {}),
        (f"r = Relu(x) p = Pad(r, pads) {POOL}", {"pads": [0, 0, 3, 1, 0, 0, 1, 1]}),
        ("p = Pad(x, pads) y = AveragePool<kernel_shape=[3,3]>(p)", {}),
    ],
)
def test_other_padding_stays(body, options, padded):
    assert "Pad" in padded(body, **options).ops


def test_padding_that_others_read_stays_for_them(padded):
    outcome = padded("p = Pad(x, pads) a = Conv(p, w) m = ReduceMax(p) y = Add(a, m)")
    assert outcome.ops == ["Add", "Conv", "Pad", "ReduceMax"]
    assert outcome.node("Conv").inputs[0] == "x"
