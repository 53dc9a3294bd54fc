"""Operations that only move numbers."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("parts", [(16, 16), (3, 5), (24, 8, 17), (1, 2), (40, 3, 1, 64)], ids=str)
def test_concat_of_channels(check, kind, sketch, parts):
    inputs = [sketch("Tanh", sketch.input(2, part, 5, 4)) for part in parts]
    joined = sketch("Concat", *inputs, axis=1)
    check(sketch.done(sketch.conv(joined, 16)), kind)


def test_concat_along_an_axis_from_the_end(check, sketch):
    inputs = [sketch.input(2, 3, 5, 4), sketch.input(2, 5, 5, 4)]
    check(sketch.done(sketch.conv(sketch("Concat", *inputs, axis=-3), 16)), "float32")


@pytest.mark.parametrize("axis", [0, 2, 3])
def test_concat_of_pixels(check, kind, sketch, axis):
    inputs = [sketch.input(2, 17, 5, 4), sketch.input(2, 17, 5, 4)]
    check(sketch.done(sketch.conv(sketch("Concat", *inputs, axis=axis), 16)), kind)


def test_concat_of_tokens(check, kind, sketch):
    inputs = [sketch.input(2, 1, 24), sketch.input(2, 7, 24)]
    check(sketch.done(sketch.linear(sketch("Concat", *inputs, axis=1), 16)), kind)


def test_concat_with_a_constant(check, kind, sketch):
    joined = sketch("Concat", sketch.vector(1, 1, 24), sketch.input(1, 7, 24), axis=1)
    check(sketch.done(sketch.linear(joined, 16)), kind)


@pytest.mark.parametrize("parts", [(16, 16), (3, 5), (24, 8, 17), (1, 2), (40, 3, 1, 64)], ids=str)
def test_split(check, kind, sketch, parts):
    x = sketch("Tanh", sketch.input(2, sum(parts), 5, 4))
    first = sketch("Split", x, sketch.constant(parts), outputs=len(parts), axis=1)
    names = [first, *(f"{first}_{index}" for index in range(1, len(parts)))]
    check(sketch.done(*[sketch.conv(name, 16, 1) for name in names]), kind)


@pytest.mark.parametrize("parts", [(16, 16), (3, 5), (24, 8, 17)], ids=str)
@pytest.mark.parametrize("kernel", [3, (1, 3), (3, 1)])
def test_split_before_windows(check, kind, sketch, parts, kernel):
    x = sketch("Tanh", sketch.input(2, sum(parts), 5, 4))
    first = sketch("Split", x, sketch.constant(parts), outputs=len(parts), axis=1)
    names = [first, *(f"{first}_{index}" for index in range(1, len(parts)))]
    # The last part is read before the first.
    check(sketch.done(*[sketch.conv(name, 16, kernel) for name in names[::-1]]), kind)


def test_split_that_is_joined_again(check, kind, sketch):
    """In the block of YOLOv8 one half goes through a convolution, and all parts are joined."""
    x = sketch.conv(sketch.input(1, 16, 6, 6), 48, 1)
    half = sketch("Split", x, sketch.constant([24, 24]), outputs=2, axis=1)
    other = f"{half}_1"
    joined = sketch("Concat", half, other, sketch.conv(other, 24), axis=1)
    check(sketch.done(sketch.conv(joined, 16, 1)), kind)


def test_split_of_a_split(check, kind, sketch):
    x = sketch("Tanh", sketch.input(2, 40, 5, 4))
    first = sketch("Split", x, sketch.constant([10, 30]), outputs=2, axis=1)
    second = sketch("Split", f"{first}_1", sketch.constant([17, 13]), outputs=2, axis=1)
    convs = [sketch.conv(name, 8, 1) for name in (first, second, f"{second}_1")]
    check(sketch.done(*convs), kind)


def test_split_of_tokens(check, kind, sketch):
    x = sketch.linear(sketch.input(2, 7, 24), 96)
    q = sketch("Split", x, sketch.constant([32, 32, 32]), outputs=3, axis=-1)
    y = sketch("Attention", q, f"{q}_1", f"{q}_2", heads=2, scale=0.25)
    check(sketch.done(sketch.linear(y, 16)), kind)


@pytest.mark.parametrize("channels", [3, 16, 17])
@pytest.mark.parametrize("scales", [(2, 2), (1, 2), (3, 2)])
@pytest.mark.parametrize("where", ["asymmetric", "half_pixel"])
def test_resize(check, kind, sketch, channels, scales, where):
    x = sketch("Tanh", sketch.input(2, channels, 4, 3))
    more = {"mode": "nearest", "coordinate_transformation_mode": where}
    if where == "asymmetric":
        more["nearest_mode"] = "floor"
    y = sketch("Resize", x, "", sketch.constant(np.array([1, 1, *scales], np.float32)), **more)
    check(sketch.done(sketch.conv(y, 16)), kind)


@pytest.mark.parametrize(
    ("scale", "more"),
    [
        (3, {"coordinate_transformation_mode": "asymmetric"}),
        (2, {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"}),
        (3, {"coordinate_transformation_mode": "align_corners", "nearest_mode": "floor"}),
        (2, {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "ceil"}),
        (2, {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor"}),
    ],
    ids=str,
)
def test_resize_that_repeats_unevenly(check, sketch, scale, more):
    x = sketch.input(1, 16, 4, 3)
    scales = sketch.constant(np.array([1, 1, scale, scale], np.float32))
    graph = sketch.done(sketch("Resize", x, "", scales, mode="nearest", **more))
    check(graph, "float32", or_refused=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((2, 24, 5, 4), (2, 480)),
        ((2, 24, 5, 4), (2, 24, 20)),
        ((2, 20, 24), (2, 20, 3, 8)),
        ((2, 480), (2, 24, 5, 4)),
        ((1, 3, 4, 4), (3, 16)),
        ((1, 17, 1, 1), (1, 17)),
        ((1, 24, 7), (24, 7)),
        ((6, 8), (2, 3, 8)),
        ((2, 3, 4, 4), (1, 6, 4, 4)),
    ],
)
def test_reshape(check, sketch, before, after):
    x = sketch("Tanh", sketch.input(*before))
    check(sketch.done(sketch("Reshape", x, sketch.constant(after))), "float32")


def test_reshape_of_unlike_sizes(check, sketch):
    x = sketch.input(2, 3, 4)
    graph = sketch.done(sketch("Reshape", x, sketch.constant([4, 6])))
    check(graph, "float32", or_refused=True)


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((2, 24, 5, 4), (0, 2, 3, 1)),
        ((2, 5, 4, 24), (0, 3, 1, 2)),
        ((2, 24, 5, 3), (3, 1, 0, 2)),
        ((2, 7, 40), (0, 2, 1)),
        ((2, 7, 40), (2, 0, 1)),
        ((3, 17), (1, 0)),
        ((1, 3, 8, 8), (0, 2, 3, 1)),
    ],
)
def test_transpose(check, sketch, shape, order):
    x = sketch("Tanh", sketch.input(*shape))
    check(sketch.done(sketch("Transpose", x, perm=list(order))), "float32")


def test_transpose_without_order(check, sketch):
    check(sketch.done(sketch("Transpose", sketch.input(2, 7, 40))), "float32")


@pytest.mark.parametrize("axis", [1, 2, 3, -1])
def test_flatten(check, kind, sketch, axis):
    x = sketch("Tanh", sketch.input(2, 24, 3, 4))
    flat = sketch("Flatten", x, axis=axis)
    check(sketch.done(sketch.linear(flat, 10)), kind)


def test_squeeze_and_unsqueeze(check, kind, sketch):
    x = sketch.input(2, 24, 3, 4)
    flat = sketch("Squeeze", sketch("GlobalAveragePool", x), sketch.constant([2, 3]))
    tall = sketch("Unsqueeze", sketch.linear(flat, 10), sketch.constant([2, 3]))
    check(sketch.done(tall), kind)


def test_pictures_as_tokens(check, kind, sketch):
    """A vision transformer begins like this."""
    x = sketch.conv(sketch.input(1, 3, 16, 16), 32, 4, strides=[4, 4], pads=[0, 0, 0, 0])
    flat = sketch("Reshape", x, sketch.constant([1, 32, 16]))
    tokens = sketch("Transpose", flat, perm=[0, 2, 1])
    y = sketch("LayerNormalization", tokens, sketch.vector(32), sketch.vector(32), axis=-1)
    check(sketch.done(sketch.linear(y, 24)), kind)
