"""Operators that the native engine lacks: an error says so, so that another engine can run them."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.errors import UnsupportedError
from slipstream.infer.graph.graph import Value
from slipstream.infer.native.lower import lower
from slipstream.infer.native.operations import OPERATIONS


def refused(graph, words, formats=None):
    with pytest.raises(UnsupportedError, match=words):
        lower(graph, formats or {}, OPERATIONS)


def test_operator_without_a_kernel(sketch):
    refused(sketch.done(sketch("Erf", sketch.input(2, 16))), "Erf")


@pytest.mark.parametrize("groups", [2, 4])
def test_groups(sketch, groups):
    refused(sketch.done(sketch.conv(sketch.input(1, 16, 4, 4), 32, 3, groups)), "groups")


def test_depth_multiplier(sketch):
    refused(sketch.done(sketch.conv(sketch.input(1, 16, 4, 4), 32, 3, 16)), "groups")


def test_conv_over_one_dimension(sketch):
    weights = sketch.weights(8, 16, 3)
    refused(sketch.done(sketch("Conv", sketch.input(1, 16, 9), weights)), "one dimension")


def test_conv_over_three_dimensions(sketch):
    weights = sketch.weights(8, 16, 3, 3, 3)
    refused(sketch.done(sketch("Conv", sketch.input(1, 16, 5, 5, 5), weights)), "dimensions")


def test_computed_weights(sketch):
    y = sketch("Conv", sketch.input(1, 16, 5, 5), sketch.input(8, 16, 3, 3))
    refused(sketch.done(y), "constants")
    y = sketch("Gemm", sketch.input(2, 16), sketch.input(16, 8))
    refused(sketch.done(y), "constants")


@pytest.mark.parametrize("more", [{"alpha": 0.5}, {"beta": 2.0}])
def test_gemm_with_factors(sketch, more):
    y = sketch("Gemm", sketch.input(3, 16), sketch.weights(16, 8), sketch.vector(8), **more)
    refused(sketch.done(y), "Gemm")


def test_gemm_of_a_turned_matrix(sketch):
    y = sketch("Gemm", sketch.input(16, 3), sketch.weights(16, 8), transA=1)
    refused(sketch.done(y), "Gemm")


def test_gemm_with_a_bias_per_row(sketch):
    y = sketch("Gemm", sketch.input(8, 16), sketch.weights(16, 8), sketch.vector(8, 1))
    refused(sketch.done(y), "Gemm")


def test_linear_of_a_picture(sketch):
    """Channels of the input are on the last axis, and those of a picture on the second."""
    x = sketch.input(1, 16, 16, 16)
    refused(sketch.done(sketch("Linear", x, sketch.weights(16, 16))), "Linear")


def test_mean_of_windows_that_end_outside_of_what_is_counted(sketch):
    y = sketch(
        "AveragePool",
        sketch.input(1, 16, 6, 6),
        kernel_shape=[3, 3],
        strides=[2, 2],
        ceil_mode=1,
        count_include_pad=1,
    )
    refused(sketch.done(y), "ceil_mode")


def test_pooling_with_indices(sketch):
    y = sketch("MaxPool", sketch.input(1, 16, 6, 6), outputs=2, kernel_shape=[2, 2])
    refused(sketch.done(y), "indices")


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pooling_over_one_dimension(sketch, op):
    refused(sketch.done(sketch(op, sketch.input(1, 16, 9), kernel_shape=[3])), op)


def test_global_mean_over_one_dimension(sketch):
    refused(sketch.done(sketch("GlobalAveragePool", sketch.input(1, 16, 9))), "GlobalAveragePool")


@pytest.mark.parametrize("axes", [[1], [1, 2, 3], [3]])
def test_mean_over_other_axes(sketch, axes):
    y = sketch("ReduceMean", sketch.input(1, 16, 5, 5), axes=axes, keepdims=1)
    refused(sketch.done(y), "ReduceMean")


def test_addition_of_unlike_shapes(sketch):
    y = sketch("Add", sketch.input(2, 16, 4, 4), sketch.input(2, 16, 1, 1))
    refused(sketch.done(y), "one shape")


@pytest.mark.parametrize("shape", [(1, 1, 4, 4), (2, 1, 1, 1), (4, 4)])
def test_constants_that_are_no_channels(sketch, shape):
    y = sketch("Mul", sketch.input(2, 16, 4, 4), sketch.vector(*shape))
    refused(sketch.done(y), "Mul")


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_constant_that_makes_more_channels(sketch, op):
    y = sketch(op, sketch.input(2, 1, 4, 4), sketch.vector(1, 16, 1, 1))
    refused(sketch.done(y), op)


@pytest.mark.parametrize("shape", [(2, 16, 4, 4), (2, 1, 4, 4), (1, 16, 1, 1)])
def test_products_of_pictures(sketch, shape):
    y = sketch("Mul", sketch.input(2, 16, 4, 4), sketch.input(*shape))
    refused(sketch.done(y), "Mul")


def test_clip_to_computed_bounds(sketch):
    refused(sketch.done(sketch("Clip", sketch.input(2, 16), sketch.input(1))), "Clip")


def test_clip_with_attributes(sketch):
    """Clip had attributes up to opset 10."""
    y = sketch("Relu", sketch.input(2, 16))
    graph = sketch.done(sketch("Clip", y))
    graph.nodes[-1].attributes.update(min=0.25, max=0.5)
    refused(graph, "Clip")


def test_approximate_gelu(sketch):
    refused(sketch.done(sketch("Gelu", sketch.input(2, 16), approximate="tanh")), "Gelu")


@pytest.mark.parametrize(
    ("shape", "axis"), [((1, 16, 4, 4), -1), ((2, 7, 16), 1), ((1, 16, 4, 4), 1), ((3, 16), 0)]
)
def test_softmax_over_other_axes(sketch, shape, axis):
    refused(sketch.done(sketch("Softmax", sketch.input(*shape), axis=axis)), "Softmax")


@pytest.mark.parametrize(("shape", "axis"), [((2, 7, 16), 1), ((2, 4, 4, 16), -1)])
def test_norm_over_other_axes(sketch, shape, axis):
    scale = sketch.vector(*shape[axis:])
    y = sketch("LayerNormalization", sketch.input(*shape), scale, axis=axis)
    refused(sketch.done(y), "last")


@pytest.mark.parametrize("size", [8, 20])
def test_attention_of_odd_heads(sketch, size):
    x = sketch.input(1, 7, 2 * size)
    refused(sketch.done(sketch("Attention", x, x, x, heads=2, scale=1.0)), "heads")


def test_attention_of_the_standard(sketch):
    """The operator of this name in opset 23 of ONNX has other attributes."""
    x = sketch.input(1, 7, 32)
    graph = sketch.done(sketch("Attention", x, x, x, heads=2, scale=1.0))
    graph.nodes[0].domain = ""
    graph.nodes[0].attributes = {"q_num_heads": 2, "kv_num_heads": 2}
    refused(graph, "Attention")


@pytest.mark.parametrize("axis", [0, 2])
def test_split_along_other_axes(sketch, axis):
    x = sketch.input(2, 16, 4, 4)
    y = sketch("Split", x, outputs=2, axis=axis)
    refused(sketch.done(sketch("Relu", y)), "Split")


def test_resize_between_pixels(sketch):
    x = sketch.input(1, 16, 4, 4)
    scales = sketch.constant(np.array([1, 1, 2, 2], np.float32))
    refused(sketch.done(sketch("Resize", x, "", scales, mode="linear")), "Resize")


def test_resize_to_no_multiple(sketch):
    x = sketch.input(1, 16, 4, 4)
    sizes = sketch.constant([1, 16, 6, 6])
    refused(sketch.done(sketch("Resize", x, "", "", sizes, mode="nearest")), "Resize")


@pytest.mark.parametrize("shape", [(1, 2, 3, 4, 5), ()])
def test_dimensions(sketch, shape):
    refused(sketch.done(sketch("Relu", sketch.input(*shape))), "dimensions")


def test_sizes_that_are_not_known(sketch):
    x = sketch.input(1, 16)
    sketch.graph.inputs[x] = Value(np.dtype(np.float32), ("batch", 16))
    refused(sketch.done(sketch("Relu", x)), "not fixed")


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64])
def test_other_numbers(sketch, dtype):
    x = sketch.input(2, 16)
    sketch.graph.inputs[x] = Value(np.dtype(dtype), (2, 16))
    refused(sketch.done(sketch("Relu", x)), "float32")
