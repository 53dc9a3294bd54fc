"""Layers with windows: pooling with Caffe's rounding, and local response normalization."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.errors import UsageError
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.caffe.network import CaffeLayer
from slipstream.infer.importers.caffe.products import pair
from slipstream.infer.importers.caffe.text import Message
from slipstream.infer.importers.pooling import Windows, pool

POOLS = ("MAX", "AVE", "STOCHASTIC")
REGIONS = ("ACROSS_CHANNELS", "WITHIN_CHANNEL")


def kind(layer: CaffeLayer) -> str:
    """Return the layer's type; stochastic pooling, not supported, is "Pooling of STOCHASTIC"."""
    if layer.type == "Pooling":
        pool = layer.message.message("pooling_param").choice("pool", POOLS)
        return "Pooling" if pool != "STOCHASTIC" else "Pooling of STOCHASTIC"
    return layer.type


def _pooling(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Pool; the number of windows is rounded up, unless the layer asks to round down.

    Windows that begin in the padding after the image are left out. As in Caffe, a mean counts the
    padding inside a window; it does not count the part of a window that lies beyond the padding.
    """
    layer.only(x, 1)
    options = layer.message.message("pooling_param")
    shape = builder.shape(x[0])
    if len(shape) != 4:
        raise UsageError(f"{layer.title}: its input has the shape {shape}; allowed: 4 dimensions")
    is_max = options.choice("pool", POOLS) == "MAX"
    if options.flag("global_pooling", False):
        return builder.add("GlobalMaxPool" if is_max else "GlobalAveragePool", x[0])
    kernel = pair(options, ("kernel_size", "kernel_h", "kernel_w"), 0, 1)
    strides = pair(options, ("stride", "stride_h", "stride_w"), 1, 1)
    pads = pair(options, ("pad", "pad_h", "pad_w"), 0, 0)
    counts = _counts(options, shape[2:], kernel, strides, pads)
    return pool(builder, x[0], Windows(kernel, strides, pads, counts), "max" if is_max else "mean")


def _counts(
    options: Message,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
) -> list[int]:
    """Return the number of windows along each axis: down a column, and along a row."""
    is_floor = options.choice("round_mode", ("CEIL", "FLOOR")) == "FLOOR"
    is_floor = is_floor or not options.flag("ceil_mode", True)
    counts: list[int] = []
    for size, window, stride, pad in zip(sizes, kernel, strides, pads, strict=True):
        span = size + 2 * pad - window
        count = 1 + (span // stride if is_floor else -(-span // stride))
        if any(pads) and (count - 1) * stride >= size + pad:
            count -= 1
        if pad >= window or count < 1 or (count - 1) * stride >= size + pad:
            raise UsageError(
                f"{options.where}: windows of {window} pixels with stride {stride} and padding"
                f" {pad} lie outside an image of {size} pixels"
            )
        counts.append(count)
    return counts


def _lrn(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    layer.only(x, 1)
    options = layer.message.message("lrn_param")
    size = options.integer("local_size", 5)
    alpha, beta = options.number("alpha", 1.0), options.number("beta", 0.75)
    if size < 1 or size % 2 == 0 or size > 2**20:
        raise UsageError(f"{layer.title}: local_size is {size}; allowed: odd numbers")
    if options.choice("norm_region", REGIONS) == "ACROSS_CHANNELS":
        bias = options.number("k", 1.0)
        return builder.add("LRN", x[0], size=size, alpha=alpha, beta=beta, bias=bias)
    squares = builder.add("Mul", x[0], x[0])
    mean = builder.add(
        "AveragePool",
        squares,
        kernel_shape=[size, size],
        pads=[size // 2] * 4,
        strides=[1, 1],
        count_include_pad=1,
    )
    scaled = builder.add("Mul", mean, builder.constant("alpha", alpha))
    shifted = builder.add("Add", scaled, builder.constant("one", 1.0))
    return builder.add("Div", x[0], builder.add("Pow", shifted, builder.constant("beta", beta)))


LAYERS = {"Pooling": _pooling, "LRN": _lrn}
