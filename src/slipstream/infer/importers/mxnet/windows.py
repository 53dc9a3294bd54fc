"""Operators with windows, and operators that change the size of images."""

from __future__ import annotations

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.mxnet.products import per_axis, plain_layout
from slipstream.infer.importers.mxnet.symbol import SymbolOptions
from slipstream.infer.importers.pooling import Windows, pool

GLOBAL = {"max": "GlobalMaxPool", "avg": "GlobalAveragePool"}


def _pooling(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    """Add a pooling operator.

    If the last window fits only partly into the image, it is left out; in MXNet's convention
    `full`, it is kept.
    """
    plain_layout(options)
    kind = options.choice("pool_type", ("max", "avg", "sum"))
    sizes = builder.shape(x[0])[2:]
    rank = len(sizes)
    if options.flag("global_pool", False):
        if kind in GLOBAL:
            return builder.add(GLOBAL[kind], x[0])
        axes = builder.constant("axes", np.arange(2, rank + 2))
        return builder.add("ReduceSum", x[0], axes)
    kernel = per_axis(options, "kernel", 0, rank, 1)
    strides = per_axis(options, "stride", 1, rank, 1)
    pads = per_axis(options, "pad", 0, rank, 0)
    is_full = options.choice("pooling_convention", ("valid", "full")) == "full"
    counts: list[int] = []
    for size, window, stride, pad in zip(sizes, kernel, strides, pads, strict=True):
        span = size + 2 * pad - window
        count = 1 + (-(-span // stride) if is_full else span // stride)
        if pad >= window or count < 1 or (count - 1) * stride >= size + pad:
            raise UsageError(
                f"{options.where}: windows of {window} pixels with stride {stride} and padding"
                f" {pad} lie outside an image of {size} pixels"
            )
        counts.append(count)
    windows = Windows(kernel, strides, pads, counts)
    with_padding = options.flag("count_include_pad", True)
    if kind == "max":
        return pool(builder, x[0], windows, "max")
    return pool(
        builder, x[0], windows, "mean" if kind == "avg" else "sum", with_padding=with_padding
    )


def _lrn(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    size = options.integer("nsize", 5)
    if size < 1 or size % 2 == 0 or size >= 2**31:
        raise UsageError(f"{options.where}: nsize is {size}; allowed: odd numbers")
    return builder.add(
        "LRN",
        x[0],
        size=size,
        alpha=options.number("alpha", 1e-4),
        beta=options.number("beta", 0.75),
        bias=options.number("knorm", 2.0),
    )


def _pad(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    mode = options.choice("mode", ("constant", "edge", "reflect"))
    widths = options.integers("pad_width")
    if len(widths) != 2 * len(builder.shape(x[0])) or not all(0 <= n < 2**31 for n in widths):
        raise UsageError(
            f"{options.where}: pad_width is {widths}; allowed: two numbers from 0 for every axis"
        )
    inputs = [x[0], builder.constant("pads", np.asarray(widths[::2] + widths[1::2], np.int64))]
    if mode == "constant":
        value = options.number("constant_value", 0.0)
        inputs.append(builder.constant("value", value))
    return builder.add("Pad", *inputs, mode=mode)


def _up_sampling(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    """Enlarge images by repeating pixels.

    If there are several inputs, all are resized to the same size and concatenated.
    """
    options.choice("sample_type", ("nearest",))
    scale = options.integer("scale", 1)
    options.choice("multi_input_mode", ("concat",))
    shape = builder.shape(x[0])
    if len(shape) != 4 or not 1 <= scale < 2**31:
        raise UsageError(
            f"{options.where}: scale is {scale} and the input has the shape {shape}; allowed: a"
            " scale from 1, and 4 dimensions"
        )
    size = [length * scale for length in shape[2:]]
    parts = [_resized(builder, name, size, "nearest", "asymmetric") for name in x]
    return parts[0] if len(parts) == 1 else builder.add("Concat", *parts, axis=1)


def _resized(builder: Builder, x: str, size: list[int], mode: str, coordinates: str) -> str:
    sizes = np.asarray([*builder.shape(x)[:2], *size], np.int64)
    attributes = {"nearest_mode": "floor"} if mode == "nearest" else {}
    return builder.add(
        "Resize",
        x,
        "",
        "",
        builder.constant("sizes", sizes),
        mode=mode,
        coordinate_transformation_mode=coordinates,
        **attributes,
    )


def _bilinear_resize(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    options.choice("mode", ("size",))
    size = [options.integer("height", 1), options.integer("width", 1)]
    if options.has("scale_height") or min(size) < 1 or len(builder.shape(x[0])) != 4:
        raise UsageError(
            f"{options.where}: allowed: height and width from 1, no scale_height, 4 dimensions"
        )
    corners = options.flag("align_corners", True)
    return _resized(builder, x[0], size, "linear", "align_corners" if corners else "half_pixel")


OPERATORS = {
    "LRN": _lrn,
    "Pad": _pad,
    "Pooling": _pooling,
    "Pooling_v1": _pooling,
    "UpSampling": _up_sampling,
    "_contrib_BilinearResize2D": _bilinear_resize,
    "pad": _pad,
}
