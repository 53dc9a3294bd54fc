"""Caffe's layers that join, cut, reshape and reorder, and prior boxes."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("options", ["", "concat_param { axis: 2 }", "concat_param { axis: -1 }"])
def test_concat(new_net, same, options):
    net = new_net()
    net.add("Concat", [net.input(name, 2, 3, 4, 5) for name in "abc"], options)
    same(net)


@pytest.mark.parametrize(
    "options", ["", "slice_point: 1 slice_point: 4", "axis: 3 slice_point: 2 slice_point: 8"]
)
def test_slice(new_net, same, options):
    net = new_net()
    data = net.input("data", 2, 6, 7, 9)
    net.add("Slice", data, f"slice_param {{ {options} }}", tops=["a", "b", "c"])
    for part in "abc":
        net.add("TanH", part, name=f"of_{part}")
    assert list(same(net)) == ["of_a", "of_b", "of_c"]


def test_split(new_net, same):
    net = new_net()
    data = net.input("data", 2, 6, 7, 9)
    net.add("Split", data, tops=["a", "b"])
    net.add("ReLU", "a", name="x")
    net.add("TanH", "b", name="y")
    same(net)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Flatten", ""),
        ("Flatten", "flatten_param { axis: 2 }"),
        ("Flatten", "flatten_param { axis: 1 end_axis: 2 }"),
        ("Reshape", "reshape_param { shape { dim: 0 dim: 3 dim: -1 } }"),
        ("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 3 dim: 2 } }"),
        ("Reshape", "reshape_param { shape { dim: 3 dim: 2 } axis: 1 num_axes: 1 }"),
        ("Reshape", "reshape_param { shape { dim: -1 } axis: 1 num_axes: 2 }"),
        ("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }"),
        ("ShuffleChannel", "shuffle_channel_param { group: 3 }"),
    ],
)
def test_moves(one, same, kind, options):
    same(one(kind, options))


@pytest.mark.parametrize(
    ("kind", "options", "right"),
    [
        ("Tile", "tile_param { axis: 2 tiles: 3 }", lambda x: np.tile(x, (1, 1, 3, 1))),
        ("Reduction", "", lambda x: x.sum()),
        ("Reduction", "reduction_param { operation: MEAN axis: 1 }", lambda x: x.mean((1, 2, 3))),
        (
            "Reduction",
            "reduction_param { operation: ASUM axis: 2 coeff: 0.5 }",
            lambda x: np.abs(x).sum((2, 3)) / 2,
        ),
        ("Reduction", "reduction_param { operation: SUMSQ axis: -1 }", lambda x: (x**2).sum(3)),
        ("ArgMax", "argmax_param { axis: 1 }", lambda x: x.argmax(1)[:, None]),
        ("ArgMax", "", lambda x: x.reshape(2, -1).argmax(1).reshape(2, 1, 1)),
        (
            "ArgMax",
            "argmax_param { top_k: 2 axis: 3 out_max_val: true }",
            lambda x: -np.sort(-x, axis=3)[..., :2],
        ),
    ],
)
def test_moves_that_opencv_has_not(one, computed, kind, options, right):
    computed(one(kind, options), lambda x: np.asarray(right(x), np.float32))


@pytest.mark.parametrize("options", ["", "axis: 2 offset: 1 offset: 2", "axis: 1 offset: 1"])
def test_crop(new_net, same, options):
    net = new_net()
    data = net.input("data", 2, 6, 7, 9)
    net.add("Crop", [data, net.input("like", 2, 4, 5, 6)], f"crop_param {{ {options} }}")
    same(net)


@pytest.mark.parametrize(
    "options",
    [
        "min_size: 4 aspect_ratio: 2 variance: 0.1",
        "min_size: 4 max_size: 9 aspect_ratio: 2 aspect_ratio: 3 flip: true clip: true"
        " variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2",
        "min_size: 3 max_size: 6 aspect_ratio: 1.5 flip: false step: 8 offset: 0.3 variance: 0.1",
    ],
)
def test_prior_boxes(new_net, same, options):
    net = new_net()
    data = net.input("data", 1, 3, 32, 48)
    cells = net.add("Pooling", data, "pooling_param { kernel_size: 8 stride: 8 }")
    net.add("PriorBox", [cells, data], f"prior_box_param {{ {options} }}", name="boxes")
    net.add("ReLU", cells, name="rest")
    same(net)
