"""Layers with weights: convolutions, inner products, batch normalization, scales."""

# NumPy's stubs do not state all types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.caffe.network import CaffeLayer
from slipstream.infer.importers.caffe.text import Message
from slipstream.infer.importers.moves import axis_of, cast, reshape

BATCH_NORM_EPSILON = 1e-5  # Caffe's default


def pair(options: Message, names: tuple[str, str, str], default: int, least: int) -> list[int]:
    """Return [height, width] of a window's property, for example of its size or its stride.

    The file stores one number for height and width together, or one number for each.
    """
    both, height, width = names
    values = options.integers(both) or [default]
    sizes = [options.integer(height, values[0]), options.integer(width, values[-1])]
    if len(values) > 2 or any(not least <= value < 2**31 for value in sizes):
        raise UsageError(
            f"{options.where}: {both} is {values or sizes}; allowed: up to two numbers from {least}"
        )
    return sizes


def _windows(options: Message) -> dict[str, list[int]]:
    names = ("kernel_size", "kernel_h", "kernel_w")
    pads = pair(options, ("pad", "pad_h", "pad_w"), 0, 0)
    return {
        "kernel_shape": pair(options, names, 0, 1),
        "strides": pair(options, ("stride", "stride_h", "stride_w"), 1, 1),
        "pads": pads * 2,
        "dilations": pair(options, ("dilation", "", ""), 1, 1),
    }


def _convolution(builder: Builder, layer: CaffeLayer, x: list[str]) -> list[str]:
    """Convolve all inputs of the layer with the same weights, like Caffe."""
    options = layer.message.message("convolution_param")
    outputs = options.integer("num_output", 0)
    attributes = _windows(options)
    is_transposed = layer.type == "Deconvolution"
    results: list[str] = []
    for blob in x:
        channels = _channels(builder, layer, blob)
        group = options.integer("group", 1)
        if layer.type.endswith("onvolution") and "epthwise" in layer.type:
            group = channels
        if group < 1 or outputs < 1 or channels % group or outputs % group:
            raise UsageError(
                f"{layer.title}: {group} groups do not divide {channels} input channels and"
                f" {outputs} output channels"
            )
        ends = (channels, outputs // group) if is_transposed else (outputs, channels // group)
        inputs = [blob, _weights(builder, layer, (*ends, *attributes["kernel_shape"]))]
        if options.flag("bias_term", True):
            inputs.append(builder.constant("bias", layer.blob(1, (outputs,))))
        op = "ConvTranspose" if is_transposed else "Conv"
        results.append(builder.add(op, *inputs, group=group, **attributes))
    return results


def _channels(builder: Builder, layer: CaffeLayer, blob: str) -> int:
    shape = builder.shape(blob)
    if len(shape) != 4:
        raise UsageError(f"{layer.title}: its input has the shape {shape}; allowed: 4 dimensions")
    return shape[1]


def _weights(builder: Builder, layer: CaffeLayer, shape: tuple[int, ...]) -> str:
    return builder.constant("weight", layer.blob(0, shape))


def _inner_product(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    layer.only(x, 1)
    options = layer.message.message("inner_product_param")
    shape = builder.shape(x[0])
    axis = axis_of(options, "axis", 1, len(shape))
    outputs = options.integer("num_output", 0)
    inner = math.prod(shape[axis:])
    is_transposed = options.flag("transpose", False)
    weight = layer.blob(0, (inner, outputs) if is_transposed else (outputs, inner))
    flat = builder.add("Flatten", x[0], axis=axis)
    inputs = [flat, builder.constant("weight", weight)]
    if options.flag("bias_term", True):
        inputs.append(builder.constant("bias", layer.blob(1, (outputs,))))
    result = builder.add("Gemm", *inputs, transB=int(not is_transposed))
    if axis == 1:
        return result
    return reshape(builder, result, (*shape[:axis], outputs))


def _embed(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    layer.only(x, 1)
    options = layer.message.message("embed_param")
    outputs = options.integer("num_output", 0)
    table = builder.constant("weight", layer.blob(0, (options.integer("input_dim", 0), outputs)))
    result = builder.add("Gather", table, cast(builder, x[0], np.int64))
    if not options.flag("bias_term", True):
        return result
    return builder.add("Add", result, builder.constant("bias", layer.blob(1, (outputs,))))


def _batch_norm(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Normalize by stored means and variances.

    The stored means and variances are first divided by the number in the third blob.
    """
    layer.only(x, 1)
    options = layer.message.message("batch_norm_param")
    shape = builder.shape(x[0])
    if not options.flag("use_global_stats", True) or len(shape) < 2 or len(layer.blobs) > 3:
        raise UsageError(
            f"{layer.title}: it has {len(layer.blobs)} blobs and an input of the shape {shape};"
            " allowed: 3 blobs, at least 2 dimensions, and use_global_stats"
        )
    factor = float(layer.blob(2, (1,))[0])
    factor = 0.0 if factor == 0 else 1 / factor
    channels = (shape[1],)
    mean, variance = (layer.blob(index, channels) * np.float32(factor) for index in (0, 1))
    return builder.add(
        "BatchNormalization",
        x[0],
        builder.constant("scale", np.ones(channels, np.float32)),
        builder.constant("shift", np.zeros(channels, np.float32)),
        builder.constant("mean", mean),
        builder.constant("variance", variance),
        epsilon=options.number("eps", BATCH_NORM_EPSILON),
    )


def _scale(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Compute x * scale + bias; the scale is a blob of weights or the second input."""
    options = layer.message.message("scale_param")
    has_bias = options.flag("bias_term", False)
    if len(x) == 2:
        result = builder.add("Mul", x[0], _stretched(builder, options, x))
    else:
        layer.only(x, 1)
        shape = _stored_shape(builder, options, x[0])
        result = builder.add("Mul", x[0], builder.constant("scale", layer.blob(0, shape)))
    if not has_bias:
        return result
    shape = _broadcast_shape(builder, options, x)
    return builder.add("Add", result, builder.constant("bias", layer.blob(len(x) % 2, shape)))


def _bias(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    options = layer.message.message("bias_param")
    if len(x) == 2:
        return builder.add("Add", x[0], _stretched(builder, options, x))
    layer.only(x, 1)
    shape = _stored_shape(builder, options, x[0])
    return builder.add("Add", x[0], builder.constant("bias", layer.blob(0, shape)))


def _stored_shape(builder: Builder, options: Message, x: str) -> tuple[int, ...]:
    """Return the shape in which a stored blob broadcasts to x.

    The shape begins with the sizes of the `num_axes` axes of x from `axis` on. For each later axis
    of x, it has a 1.
    """
    shape = builder.shape(x)
    axis = axis_of(options, "axis", 1, len(shape))
    count = options.integer("num_axes", 1)
    if count < -1 or axis + count > len(shape):
        raise UsageError(
            f"{options.where}: num_axes is {count}, but the input has the shape {shape}"
        )
    end = len(shape) if count < 0 else axis + count
    return (*shape[axis:end], *(1 for _ in shape[end:]))


def _stretched(builder: Builder, options: Message, x: list[str]) -> str:
    """Reshape the second blob so that it broadcasts to the first."""
    return reshape(builder, x[1], _broadcast_shape(builder, options, x))


def _broadcast_shape(builder: Builder, options: Message, x: list[str]) -> tuple[int, ...]:
    if len(x) == 1:
        return _stored_shape(builder, options, x[0])
    shape, other = builder.shape(x[0]), builder.shape(x[1])
    axis = axis_of(options, "axis", 1, len(shape))
    return (*other, *(1 for _ in shape[axis + len(other) :]))


def _prelu(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    layer.only(x, 1)
    shape = builder.shape(x[0])
    is_shared = layer.message.message("prelu_param").flag("channel_shared", False)
    slope: Array = layer.blob(0, (1,) if is_shared else shape[1:2])
    slopes = slope.reshape(-1, *(1 for _ in shape[2:]))
    return builder.add("PRelu", x[0], builder.constant("slope", slopes))


def _normalize(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Divide by a Euclidean norm, like SSD.

    The norm is computed over the channels of each pixel, or over the whole image.
    """
    layer.only(x, 1)
    options = layer.message.message("norm_param")
    channels = _channels(builder, layer, x[0])
    axes = [1, 2, 3] if options.flag("across_spatial", True) else [1]
    squares = builder.add("Mul", x[0], x[0])
    total = builder.add("ReduceSum", squares, builder.constant("axes", np.asarray(axes)))
    shifted = builder.add("Add", total, builder.constant("eps", options.number("eps", 1e-10)))
    unit = builder.add("Div", x[0], builder.add("Sqrt", shifted))
    size = 1 if options.flag("channel_shared", True) else channels
    scale = layer.blob(0, (size,)).reshape(1, size, 1, 1)
    return builder.add("Mul", unit, builder.constant("scale", scale))


LAYERS = {
    "Convolution": _convolution,
    "ConvolutionDepthwise": _convolution,
    "DepthwiseConvolution": _convolution,
    "Deconvolution": _convolution,
    "InnerProduct": _inner_product,
    "Embed": _embed,
    "BatchNorm": _batch_norm,
    "Scale": _scale,
    "Bias": _bias,
    "PReLU": _prelu,
    "Normalize": _normalize,
}
