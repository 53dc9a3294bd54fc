"""Operators with weights, and products of matrices."""

# NumPy's stubs do not state all types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.moves import axis_of, cast, reshape
from slipstream.infer.importers.mxnet.symbol import SymbolOptions

BATCH_NORM_EPSILON = 1e-3  # MXNet's default


def along(builder: Builder, x: str, axis: int, rank: int) -> str:
    """Reshape a vector so that it broadcasts along an axis."""
    size = math.prod(builder.shape(x))
    return reshape(builder, x, (size, *(1 for _ in range(rank - 1 - axis))))


def per_axis(options: SymbolOptions, name: str, default: int, rank: int, least: int) -> list[int]:
    """Return a property of windows, such as the stride, as one number for each axis."""
    values = options.integers(name) or [default] * rank
    if len(values) != rank or not all(least <= value < 2**31 for value in values):
        raise UsageError(
            f"{options.where}: {name} is {values}; allowed: {rank} numbers from {least}"
        )
    return values


def plain_layout(options: SymbolOptions) -> None:
    """Raise UsageError unless the channel axis comes directly after the batch axis."""
    options.choice("layout", ("None", "NCW", "NCHW", "NCDHW"))


def _windows(builder: Builder, options: SymbolOptions, x: str) -> dict[str, list[int]]:
    plain_layout(options)
    rank = len(builder.shape(x)) - 2
    pads = per_axis(options, "pad", 0, rank, 0)
    return {
        "kernel_shape": per_axis(options, "kernel", 0, rank, 1),
        "strides": per_axis(options, "stride", 1, rank, 1),
        "dilations": per_axis(options, "dilate", 1, rank, 1),
        "pads": pads * 2,
    }


def _check(builder: Builder, options: SymbolOptions, name: str, shape: tuple[int, ...]) -> None:
    if builder.shape(name) != shape:
        raise UsageError(
            f"{options.where}: its array has the shape {builder.shape(name)}, not {shape}; do the"
            " two files belong to one network?"
        )


def _convolution(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    attributes: dict[str, Any] = {**_windows(builder, options, x[0])}
    channels, outputs = builder.shape(x[0])[1], options.integer("num_filter", 0)
    group = options.integer("num_group", 1)
    if group < 1 or channels % group or outputs % group:
        raise UsageError(
            f"{options.where}: {group} groups do not divide {channels} input channels and {outputs}"
            " output channels"
        )
    _check(builder, options, x[1], (outputs, channels // group, *attributes["kernel_shape"]))
    has_bias = not options.flag("no_bias", False)
    if has_bias:
        _check(builder, options, x[2], (outputs,))
    return builder.add("Conv", *x[: 2 + has_bias], group=group, **attributes)


def _deconvolution(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    attributes: dict[str, Any] = {**_windows(builder, options, x[0])}
    channels, outputs = builder.shape(x[0])[1], options.integer("num_filter", 0)
    group = options.integer("num_group", 1)
    if options.integers("target_shape") or group < 1 or channels % group or outputs % group:
        raise UsageError(
            f"{options.where}: it has {channels} input channels, {outputs} output channels and"
            f" {group} groups; allowed: groups that divide both, and pad and adj in place of"
            " target_shape"
        )
    _check(builder, options, x[1], (channels, outputs // group, *attributes["kernel_shape"]))
    rank = len(builder.shape(x[0])) - 2
    attributes["output_padding"] = per_axis(options, "adj", 0, rank, 0)
    has_bias = not options.flag("no_bias", True)
    if has_bias:
        _check(builder, options, x[2], (outputs,))
    return builder.add("ConvTranspose", *x[: 2 + has_bias], group=group, **attributes)


def _fully_connected(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    shape = builder.shape(x[0])
    flattens = options.flag("flatten", True)
    inner = math.prod(shape[1:]) if flattens else shape[-1]
    outputs = options.integer("num_hidden", 0)
    _check(builder, options, x[1], (outputs, inner))
    has_bias = not options.flag("no_bias", False)
    if has_bias:
        _check(builder, options, x[2], (outputs,))
    flat = x[0]
    if flattens and len(shape) != 2:
        flat = builder.add("Flatten", flat, axis=1)
    elif len(shape) != 2:
        flat = reshape(builder, flat, (-1, inner))
    result = builder.add("Gemm", flat, *x[1 : 2 + has_bias], transB=1)
    if flattens or len(shape) == 2:
        return result
    return reshape(builder, result, (*shape[:-1], outputs))


def _batch_norm(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    """Normalize by stored statistics; with `fix_gamma` (default), the stored scale is ignored."""
    shape = builder.shape(x[0])
    axis = axis_of(options, "axis", 1, len(shape))
    for name in x[1:5]:
        _check(builder, options, name, (shape[axis],))
    _, gamma, beta, mean, variance = x[:5]
    if options.flag("fix_gamma", True):
        gamma = builder.constant("ones", np.ones(shape[axis], np.float32))
    epsilon = options.number("eps", BATCH_NORM_EPSILON)
    if axis == 1:
        inputs = (x[0], gamma, beta, mean, variance)
        return builder.add("BatchNormalization", *inputs, epsilon=epsilon)
    shifted = builder.add("Add", variance, builder.constant("eps", epsilon))
    scale = builder.add("Div", gamma, builder.add("Sqrt", shifted))
    offset = builder.add("Sub", beta, builder.add("Mul", mean, scale))
    scaled = builder.add("Mul", x[0], along(builder, scale, axis, len(shape)))
    return builder.add("Add", scaled, along(builder, offset, axis, len(shape)))


def _layer_norm(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    rank = len(builder.shape(x[0]))
    axis = axis_of(options, "axis", -1, rank)
    epsilon = options.number("eps", 1e-5)
    if axis == rank - 1:
        return builder.add("LayerNormalization", *x[:3], axis=-1, epsilon=epsilon)
    centred = builder.add("Sub", x[0], builder.add("ReduceMean", x[0], axes=[axis]))
    squares = builder.add("Mul", centred, centred)
    variance = builder.add("ReduceMean", squares, axes=[axis])
    shifted = builder.add("Add", variance, builder.constant("eps", epsilon))
    unit = builder.add("Div", centred, builder.add("Sqrt", shifted))
    scaled = builder.add("Mul", unit, along(builder, x[1], axis, rank))
    return builder.add("Add", scaled, along(builder, x[2], axis, rank))


def _instance_norm(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    return builder.add("InstanceNormalization", *x[:3], epsilon=options.number("eps", 1e-3))


def _l2_normalization(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    mode = options.choice("mode", ("instance", "channel", "spatial"))
    rank = len(builder.shape(x[0]))
    axes = {"instance": range(1, rank), "channel": range(1, 2), "spatial": range(2, rank)}[mode]
    squares = builder.add("Mul", x[0], x[0])
    total = builder.add("ReduceSum", squares, builder.constant("axes", np.asarray(axes)))
    shifted = builder.add("Add", total, builder.constant("eps", options.number("eps", 1e-10)))
    return builder.add("Div", x[0], builder.add("Sqrt", shifted))


def _embedding(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    """Look up rows of a table; as in MXNet, indices are clipped to the table."""
    size = options.integer("input_dim", 0)
    _check(builder, options, x[1], (size, options.integer("output_dim", 0)))
    return builder.add("Gather", x[1], indices(builder, x[0], size))


def indices(builder: Builder, x: str, size: int) -> str:
    """Convert numbers to int64 indices, and clip the indices to the range 0 to `size` - 1."""
    integers = cast(builder, x, np.int64)
    ends = [builder.constant(name, np.int64(end)) for name, end in (("min", 0), ("max", size - 1))]
    return builder.add("Min", builder.add("Max", integers, ends[0]), ends[1])


def _swapped(builder: Builder, x: str, is_swapped: bool) -> str:
    """Swap the last two axes if `is_swapped` is true."""
    if not is_swapped:
        return x
    axes = list(range(len(builder.shape(x))))
    return builder.add("Transpose", x, perm=[*axes[:-2], axes[-1], axes[-2]])


def _batch_dot(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    left = _swapped(builder, x[0], options.flag("transpose_a", False))
    return builder.add("MatMul", left, _swapped(builder, x[1], options.flag("transpose_b", False)))


def _dot(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    """Sum over the last axis of the first array and the first axis of the second array."""
    swaps = [options.flag("transpose_a", False), options.flag("transpose_b", False)]
    shapes = [builder.shape(name) for name in x[:2]]
    if any(len(shape) > 2 for shape in shapes) and any(swaps):
        raise UsageError(
            f"{options.where}: arrays of the shapes {shapes} cannot be transposed; allowed: up to 2"
            " dimensions"
        )
    pairs = zip(x[:2], swaps, shapes, strict=True)
    left, right = (_swapped(builder, name, swap and len(shape) > 1) for name, swap, shape in pairs)
    if len(shapes[1]) <= 2:
        return builder.add("MatMul", left, right)
    flat = reshape(builder, right, (shapes[1][0], -1))
    return reshape(builder, builder.add("MatMul", left, flat), (*shapes[0][:-1], *shapes[1][1:]))


OPERATORS = {
    "BatchNorm": _batch_norm,
    "BatchNorm_v1": _batch_norm,
    "Convolution": _convolution,
    "Convolution_v1": _convolution,
    "Deconvolution": _deconvolution,
    "Embedding": _embedding,
    "FullyConnected": _fully_connected,
    "InstanceNorm": _instance_norm,
    "L2Normalization": _l2_normalization,
    "LayerNorm": _layer_norm,
    "_contrib_SyncBatchNorm": _batch_norm,
    "batch_dot": _batch_dot,
    "dot": _dot,
}
