"""Caffe's layers that treat every element separately."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ReLU", ""),
        ("ReLU", "relu_param { negative_slope: 0.1 }"),
        ("ReLU6", ""),
        ("ELU", ""),
        ("Sigmoid", ""),
        ("TanH", ""),
        ("AbsVal", ""),
        ("BNLL", ""),
        ("Power", "power_param { scale: -2 shift: 3 }"),
        ("Power", "power_param { power: 2 scale: 0.5 shift: 1 }"),
        ("Exp", ""),
        ("Exp", "exp_param { base: 2 scale: 0.5 shift: -1 }"),
        ("Softmax", ""),
        ("Softmax", "softmax_param { axis: 2 }"),
        ("Softmax", "softmax_param { axis: -1 }"),
        ("Dropout", "dropout_param { dropout_ratio: 0.5 }"),
        ("MVN", ""),
        ("MVN", "mvn_param { across_channels: true normalize_variance: false }"),
    ],
)
def test_pointwise_layers(one, same, kind, options):
    same(one(kind, options))


@pytest.mark.parametrize(
    ("kind", "options", "right"),
    [
        ("ELU", "elu_param { alpha: 0.3 }", lambda x: np.where(x > 0, x, 0.3 * np.expm1(x))),
        ("Log", "log_param { base: 2 scale: 0.1 shift: 9 }", lambda x: np.log2(9 + 0.1 * x)),
        ("Swish", "swish_param { beta: 2 }", lambda x: x / (1 + np.exp(-2 * x))),
        ("Clip", "clip_param { min: -0.5 max: 0.7 }", lambda x: np.clip(x, -0.5, 0.7)),
        ("Threshold", "threshold_param { threshold: 0.2 }", lambda x: np.float32(x > 0.2)),
    ],
)
def test_pointwise_layers_that_opencv_has_not(one, computed, kind, options, right):
    computed(one(kind, options), lambda x: right(x).astype(np.float32))


@pytest.mark.parametrize(
    "options",
    ["", "operation: SUM coeff: 0.5 coeff: -2 coeff: 1", "operation: PROD", "operation: MAX"],
)
def test_eltwise(new_net, same, options):
    net = new_net()
    names = [net.input(name, 2, 3, 4, 5) for name in "abc"]
    net.add("Eltwise", names, f"eltwise_param {{ {options} }}")
    same(net)
