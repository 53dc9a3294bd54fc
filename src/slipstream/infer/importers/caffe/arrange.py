"""Layers that join, cut, reshape and reorder blobs, and reductions over the last axes."""

from __future__ import annotations

import itertools
import math

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.caffe.network import CaffeLayer
from slipstream.infer.importers.moves import axis_of, cast, reshape

REDUCTIONS = ("SUM", "ASUM", "SUMSQ", "MEAN")


def _concat(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    if not x:
        raise UsageError(f"{layer.title}: it has no input")
    options = layer.message.message("concat_param")
    name = "concat_dim" if options.has("concat_dim") else "axis"
    axis = axis_of(options, name, 1, len(builder.shape(x[0])))
    return builder.add("Concat", *x, axis=axis)


def _slice(builder: Builder, layer: CaffeLayer, x: list[str]) -> list[str]:
    layer.only(x, 1)
    options = layer.message.message("slice_param")
    shape = builder.shape(x[0])
    axis = axis_of(options, "slice_dim" if options.has("slice_dim") else "axis", 1, len(shape))
    count = len(layer.tops)
    points = options.integers("slice_point")
    if not points:
        points = [shape[axis] * number // count for number in range(1, count)]
    ends = [0, *points, shape[axis]]
    sizes = [end - begin for begin, end in itertools.pairwise(ends)]
    if (
        len(sizes) != count
        or min(sizes) < 1
        or (not options.has("slice_point") and shape[axis] % count)
    ):
        raise UsageError(
            f"{layer.title}: {shape[axis]} elements cannot be cut into {count} parts at {points};"
            " every part needs an element, and all parts the same size without slice_point"
        )
    if count == 1:
        return x
    split = builder.constant("split", np.asarray(sizes, np.int64))
    return builder.add_several(count, "Split", x[0], split, axis=axis)


def _split(builder: Builder, layer: CaffeLayer, x: list[str]) -> list[str]:
    layer.only(x, 1)
    del builder
    return x * len(layer.tops)


def _same(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    layer.only(x, 1)
    del builder
    return x[0]


def _flatten(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    layer.only(x, 1)
    options = layer.message.message("flatten_param")
    shape = builder.shape(x[0])
    begin = axis_of(options, "axis", 1, len(shape))
    end = axis_of(options, "end_axis", -1, len(shape)) + 1
    if begin == 1 and end == len(shape):
        return builder.add("Flatten", x[0], axis=1)
    return reshape(builder, x[0], (*shape[:begin], math.prod(shape[begin:end]), *shape[end:]))


def _reshape(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Reshape a range of axes; size 0 keeps an axis, and size -1 takes the remaining elements."""
    layer.only(x, 1)
    options = layer.message.message("reshape_param")
    shape = builder.shape(x[0])
    rank = len(shape)
    begin, count = options.integer("axis", 0), options.integer("num_axes", -1)
    begin += rank + 1 if begin < 0 else 0
    end = rank if count == -1 else begin + count
    if not 0 <= begin <= rank or not begin <= end <= rank:
        raise UsageError(
            f"{layer.title}: axis is {begin} and num_axes is {count}, but the blob has the shape"
            f" {shape}"
        )
    target = options.message("shape").integers("dim")
    if any(size == 0 and begin + at >= rank for at, size in enumerate(target)):
        raise UsageError(
            f"{layer.title}: the shape {target} keeps dimensions that {shape} does not have"
        )
    sizes = [size or shape[begin + at] for at, size in enumerate(target)]
    inside = math.prod(shape[begin:end])
    num_known = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and num_known:
        sizes[sizes.index(-1)] = inside // num_known
    if math.prod(sizes) != inside or min(sizes, default=1) < 1:
        raise UsageError(f"{layer.title}: {shape[begin:end]} cannot be reshaped to {target}")
    return reshape(builder, x[0], (*shape[:begin], *sizes, *shape[end:]))


def _crop(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Cut the first blob to the sizes of the second, along `axis` and all later axes."""
    layer.only(x, 2)
    options = layer.message.message("crop_param")
    shape, target = builder.shape(x[0]), builder.shape(x[1])
    axis = axis_of(options, "axis", 2, len(shape))
    axes = list(range(axis, len(shape)))
    offsets = options.integers("offset") or [0]
    begins = offsets * len(axes) if len(offsets) == 1 else offsets
    if len(begins) != len(axes) or len(target) != len(shape) or min(begins) < 0:
        raise UsageError(
            f"{layer.title}: {shape} cannot be cut to {target} at the offsets {offsets}; allowed:"
            " one offset, or one for each axis, from 0"
        )
    ends = [begin + target[place] for begin, place in zip(begins, axes, strict=True)]
    if any(end > shape[place] for end, place in zip(ends, axes, strict=True)):
        raise UsageError(f"{layer.title}: {shape} is too small for {target} at {begins}")
    tables = [
        builder.constant(name, np.asarray(values, np.int64))
        for name, values in (("starts", begins), ("ends", ends), ("axes", axes))
    ]
    return builder.add("Slice", x[0], *tables)


def _permute(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Permute the axes; the axes that the layer does not name come last, in their old order."""
    layer.only(x, 1)
    rank = len(builder.shape(x[0]))
    order = layer.message.message("permute_param").integers("order")
    order += [axis for axis in range(rank) if axis not in order]
    if sorted(order) != list(range(rank)):
        raise UsageError(
            f"{layer.title}: the order of axes is {order}; allowed: a permutation of {rank} axes"
        )
    return builder.add("Transpose", x[0], perm=order)


def _tile(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    layer.only(x, 1)
    options = layer.message.message("tile_param")
    rank = len(builder.shape(x[0]))
    repeats = np.ones(rank, np.int64)
    repeats[axis_of(options, "axis", 1, rank)] = options.integer("tiles", 1)
    return builder.add("Tile", x[0], builder.constant("repeats", repeats))


def _shuffle(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Interleave the channels of all groups."""
    layer.only(x, 1)
    group = layer.message.message("shuffle_channel_param").integer("group", 1)
    shape = builder.shape(x[0])
    if len(shape) < 2 or group < 1 or shape[1] % group:
        raise UsageError(
            f"{layer.title}: {group} groups do not divide the channels of the shape {shape}"
        )
    parts = (shape[0], group, shape[1] // group, math.prod(shape[2:]))
    interleaved = builder.add("Transpose", reshape(builder, x[0], parts), perm=[0, 2, 1, 3])
    return reshape(builder, interleaved, shape)


def _reduction(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Reduce all elements along `axis` and the axes after it to a single number."""
    layer.only(x, 1)
    options = layer.message.message("reduction_param")
    operation = options.choice("operation", REDUCTIONS)
    shape = builder.shape(x[0])
    axis = axis_of(options, "axis", 0, len(shape))
    flat = reshape(builder, x[0], (*shape[:axis], math.prod(shape[axis:])))
    if operation == "MEAN":
        result = builder.add("ReduceMean", flat, axes=[axis], keepdims=0)
    else:
        if operation != "SUM":
            flat = builder.add(*(("Abs", flat) if operation == "ASUM" else ("Mul", flat, flat)))
        axes = builder.constant("axes", np.asarray([axis]))
        result = builder.add("ReduceSum", flat, axes, keepdims=0)
    factor = options.number("coeff", 1.0)
    if factor == 1:
        return result
    return builder.add("Mul", result, builder.constant("coeff", factor))


def _arg_max(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Return the positions of the largest elements as floats, or the largest elements, or both."""
    layer.only(x, 1)
    options = layer.message.message("argmax_param")
    gives_values, count = options.flag("out_max_val", False), options.integer("top_k", 1)
    shape = builder.shape(x[0])
    has_axis = options.has("axis")
    data, axis = x[0], axis_of(options, "axis", 1, len(shape)) if has_axis else 2
    if not has_axis:
        data = reshape(builder, data, (shape[0], 1, math.prod(shape[1:])))
    if not 1 <= count <= builder.shape(data)[axis]:
        raise UsageError(
            f"{layer.title}: top_k is {count}; allowed: 1 to {builder.shape(data)[axis]}"
        )
    k = builder.constant("k", np.asarray([count]))
    values, positions = builder.add_several(2, "TopK", data, k, axis=axis)
    if has_axis and gives_values:
        return values
    floats = cast(builder, positions, np.float32)
    return builder.add("Concat", floats, values, axis=1) if gives_values else floats


LAYERS = {
    "ArgMax": _arg_max,
    "Concat": _concat,
    "Crop": _crop,
    "Dropout": _same,
    "Flatten": _flatten,
    "Permute": _permute,
    "Reduction": _reduction,
    "Reshape": _reshape,
    "ShuffleChannel": _shuffle,
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
}
