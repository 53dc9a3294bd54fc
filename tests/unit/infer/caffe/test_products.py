"""Caffe's layers with weights give the same results as OpenCV's reader."""

from __future__ import annotations

import numpy as np
import pytest

CONVOLUTIONS = [
    ("kernel_size: 3", 1, (3, 3)),
    ("kernel_size: 3 stride: 2 pad: 1", 1, (3, 3)),
    ("kernel_size: 3 stride: 2 pad: 1", 2, (3, 3)),
    ("kernel_size: 3 dilation: 2 pad: 2", 3, (3, 3)),
    ("kernel_size: 1 stride: 3", 6, (1, 1)),
    ("kernel_h: 3 kernel_w: 5 stride_h: 2 stride_w: 1 pad_h: 0 pad_w: 2", 1, (3, 5)),
    ("kernel_size: 5 pad: 4 stride: 3", 1, (5, 5)),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("options", "group", "kernel"), CONVOLUTIONS)
def test_convolutions(one, same, options, group, kernel, bias):
    text = f"num_output: 12 group: {group} {options} bias_term: {str(bias).lower()}"
    shapes = [(12, 6 // group, *kernel), (12,)][: 1 + bias]
    same(one("Convolution", f"convolution_param {{ {text} }}", *shapes))


@pytest.mark.parametrize(
    ("options", "group", "kernel"),
    [
        ("kernel_size: 4 stride: 2 pad: 1", 1, (4, 4)),
        ("kernel_size: 3", 1, (3, 3)),
        ("kernel_size: 2 stride: 2", 3, (2, 2)),
        ("kernel_h: 3 kernel_w: 2 stride_h: 3 stride_w: 2 pad_h: 1 pad_w: 0", 2, (3, 2)),
    ],
)
def test_deconvolutions(one, same, options, group, kernel):
    text = f"num_output: 12 group: {group} {options}"
    shapes = [(6, 12 // group, *kernel), (12,)]
    same(one("Deconvolution", f"convolution_param {{ {text} }}", *shapes))


@pytest.mark.parametrize(
    ("options", "weight"),
    [("", (5, 378)), ("axis: 2", (5, 63)), ("axis: -1", (5, 9))],
)
def test_inner_products(one, same, options, weight):
    net = one("InnerProduct", f"inner_product_param {{ num_output: 5 {options} }}", weight, (5,))
    same(net)


def test_inner_product_with_transposed_weights(one, computed):
    options = "inner_product_param { num_output: 5 transpose: true }"
    net = one("InnerProduct", options, (378, 5), (5,))
    weight, bias = net.weights["layer1"]
    computed(net, lambda x: x.reshape(2, -1) @ weight + bias)


@pytest.mark.parametrize("factor", [1.0, 999.9])
@pytest.mark.parametrize("options", ["", "batch_norm_param { eps: 0.001 use_global_stats: true }"])
def test_batch_norm_divides_by_its_factor(one, same, factor, options):
    net = one("BatchNorm", options, (6,), (6,), (1,))
    mean, variance, stored = net.weights["layer1"]
    mean *= np.float32(factor)
    variance[:] = (variance**2 + 1) * np.float32(factor)
    stored[:] = factor
    same(net)


def test_batch_norm_of_factor_zero_has_mean_and_variance_zero(one, computed):
    net = one("BatchNorm", "", (6,), (6,), (1,))
    net.weights["layer1"][2][:] = 0
    computed(net, lambda x: x / np.sqrt(np.float32(1e-5)))


@pytest.mark.parametrize(
    ("options", "begin", "shapes"),
    [
        ("", 1, [(6,)]),
        ("bias_term: true", 1, [(6,), (6,)]),
        ("axis: 1 num_axes: 3 bias_term: true", 1, [(6, 7, 9), (6, 7, 9)]),
        ("axis: 0 num_axes: 1", 0, [(2,)]),
        ("axis: 2 num_axes: 2", 2, [(7, 9)]),
    ],
)
def test_scales(one, computed, options, begin, shapes):
    net = one("Scale", f"scale_param {{ {options} }}", *shapes)
    scale, shift = [*net.weights["layer1"], np.zeros(shapes[0])][:2]
    shape = (*shapes[0], *[1] * (4 - begin - len(shapes[0])))
    computed(net, lambda x: x * scale.reshape(shape) + shift.reshape(shape))


@pytest.mark.parametrize("options", ["", "scale_param { bias_term: true }"])
def test_scale_beside_opencv(one, same, options):
    same(one("Scale", options, *[(6,)] * (2 if options else 1)))


def test_scale_by_what_another_layer_gives(new_net, same):
    net = new_net()
    data = net.input("data", 2, 6, 7, 9)
    pooled = net.add("Pooling", data, "pooling_param { pool: AVE global_pooling: true }")
    flat = net.add("Flatten", pooled)
    net.add("Scale", [data, flat], "scale_param { axis: 0 }")
    same(net)


@pytest.mark.parametrize(("options", "shape"), [("", (6,)), ("channel_shared: true", (1,))])
def test_prelu(one, same, options, shape):
    same(one("PReLU", f"prelu_param {{ {options} }}", shape))


@pytest.mark.parametrize(
    "options",
    ["across_spatial: false channel_shared: false", "across_spatial: true channel_shared: true"],
)
def test_normalize(one, same, options):
    shape = (6,) if "channel_shared: false" in options else (1,)
    same(one("Normalize", f"norm_param {{ {options} }}", shape))


def test_bias_and_embedding(new_net, computed):
    net = new_net()
    net.add("Bias", net.input("data", 2, 6, 3), "", (6,), name="bias")
    words = net.input("words", 2, 4)
    options = "embed_param { num_output: 5 input_dim: 9 }"
    net.add("Embed", words, options, (9, 5), (5,), name="embed")
    feeds = {**net.feeds(), "words": np.float32([[0, 8, 3, 3], [1, 2, 7, 5]])}
    found = computed(net, feeds=feeds)
    table, bias = net.weights["embed"]
    np.testing.assert_allclose(found["bias"], feeds["data"] + net.weights["bias"][0][:, None])
    np.testing.assert_allclose(found["embed"], table[feeds["words"].astype(int)] + bias)
