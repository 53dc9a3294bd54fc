"""Operators that move elements: reshape, reorder, cut, join, repeat, look up."""

from __future__ import annotations

import math

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.moves import axis_of, cast, reshape
from slipstream.infer.importers.mxnet.products import indices
from slipstream.infer.importers.mxnet.symbol import SymbolOptions

FAR = 2**62  # a position behind the end of every axis


def _reshape(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    shape = builder.shape(x[0])
    codes = options.integers("shape") or options.integers("target_shape")
    is_reversed = options.flag("reverse", False)
    if is_reversed:
        sizes = reshape_codes(shape[::-1], _reversed_codes(codes), options)[::-1]
    else:
        sizes = reshape_codes(shape, codes, options)
    return reshape(builder, x[0], sizes)


def _reversed_codes(codes: list[int]) -> list[int]:
    """Reverse a list of reshape codes (see `reshape_codes`).

    The code -4 stays before its two sizes; the two sizes are swapped.
    """
    groups: list[list[int]] = []
    at = 0
    while at < len(codes):
        size = 3 if codes[at] == -4 else 1
        groups.append(codes[at : at + size])
        at += size
    backwards = [[group[0], *group[:0:-1]] for group in reversed(groups)]
    return [code for group in backwards for code in group]


def reshape_codes(shape: tuple[int, ...], codes: list[int], options: SymbolOptions) -> list[int]:
    """Compute the shape that MXNet's reshape codes describe.

    The code 0 keeps a dimension, -1 takes the remaining elements, and -2 keeps all remaining
    dimensions. The code -3 merges two dimensions, and -4 splits a dimension into the two sizes that
    follow the code.
    """
    result: list[int] = []
    dims, remaining = list(shape), list(codes)
    try:
        while remaining:
            code = remaining.pop(0)
            if code == -2:
                result += dims
                dims = []
            elif code == -3:
                result.append(dims.pop(0) * dims.pop(0))
            elif code == -4:
                size, one, other = dims.pop(0), remaining.pop(0), remaining.pop(0)
                result += _parted(size, one, other)
            else:
                first = dims.pop(0) if dims else 0
                result.append(code or first)
        if -1 in result:
            num_known = math.prod(size for size in result if size != -1)
            result[result.index(-1)] = math.prod(shape) // num_known
    except (IndexError, ZeroDivisionError) as error:
        raise UsageError(f"{options.where}: {shape} cannot be reshaped to {codes}") from error
    if min(result, default=1) < 1 or math.prod(result) != math.prod(shape):
        raise UsageError(
            f"{options.where}: {shape} cannot be reshaped to {codes}; that would be {result}"
        )
    return result


def _parted(size: int, one: int, other: int) -> list[int]:
    if one == -1:
        one = size // other
    return [one, size // one if other == -1 else other]


def _flatten(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    del options
    return builder.add("Flatten", x[0], axis=1)


def _transpose(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    rank = len(builder.shape(x[0]))
    axes = options.integers("axes") or list(range(rank))[::-1]
    if sorted(axis % rank for axis in axes) != list(range(rank)):
        raise UsageError(
            f"{options.where}: axes is {axes}; allowed: a permutation of {rank} dimensions"
        )
    return builder.add("Transpose", x[0], perm=[axis % rank for axis in axes])


def _swap_axes(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    rank = len(builder.shape(x[0]))
    one, other = axis_of(options, "dim1", 0, rank), axis_of(options, "dim2", 0, rank)
    axes = list(range(rank))
    axes[one], axes[other] = other, one
    return builder.add("Transpose", x[0], perm=axes)


def _expand_dims(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    shape = list(builder.shape(x[0]))
    shape.insert(axis_of(options, "axis", 0, len(shape) + 1), 1)
    return reshape(builder, x[0], shape)


def _squeeze(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    shape = builder.shape(x[0])
    rank = len(shape)
    axes = [axis % rank for axis in options.integers("axis")]
    axes = axes or [axis for axis, size in enumerate(shape) if size == 1]
    if any(shape[axis] != 1 for axis in axes):
        raise UsageError(
            f"{options.where}: axes {axes} of the shape {shape} cannot be removed; allowed: axes of"
            " length 1"
        )
    return reshape(builder, x[0], [size for axis, size in enumerate(shape) if axis not in axes])


def _cut(
    builder: Builder, x: str, begins: list[int], ends: list[int], axes: list[int], steps: list[int]
) -> str:
    tables = (("starts", begins), ("ends", ends), ("axes", axes), ("steps", steps))
    names = [builder.constant(name, np.asarray(values, np.int64)) for name, values in tables]
    return builder.add("Slice", x, *names)


def _slice(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    begins, ends = options.optional_integers("begin"), options.optional_integers("end")
    steps = [step or 1 for step in options.optional_integers("step")] or [1] * len(begins)
    if not len(begins) == len(ends) == len(steps) <= len(builder.shape(x[0])):
        raise UsageError(
            f"{options.where}: begin is {begins}, end is {ends} and step is {steps}; allowed: the"
            f" same number of each, at most {len(builder.shape(x[0]))}"
        )
    pairs = [
        (begin if begin is not None else 0 if step > 0 else FAR,
         end if end is not None else FAR if step > 0 else -FAR)
        for begin, end, step in zip(begins, ends, steps, strict=True)
    ]  # fmt: skip
    axes = list(range(len(pairs)))
    return _cut(
        builder, x[0], [pair[0] for pair in pairs], [pair[1] for pair in pairs], axes, steps
    )


def _slice_axis(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    axis = axis_of(options, "axis", 0, len(builder.shape(x[0])))
    end = options.integer("end", FAR)
    return _cut(builder, x[0], [options.integer("begin", 0)], [end], [axis], [1])


def _slice_like(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    shape, like = builder.shape(x[0]), builder.shape(x[1])
    axes = [axis % len(shape) for axis in options.integers("axes")] or list(range(len(like)))
    if any(axis >= len(like) or like[axis] > shape[axis] for axis in axes):
        raise UsageError(f"{options.where}: {shape} cannot be cut to {like}")
    ends = [like[axis] for axis in axes]
    return _cut(builder, x[0], [0] * len(axes), ends, axes, [1] * len(axes))


def _split(builder: Builder, options: SymbolOptions, x: list[str]) -> list[str]:
    count = options.integer("num_outputs", 1)
    shape = builder.shape(x[0])
    axis = axis_of(options, "axis", 1, len(shape))
    if not 1 <= count <= shape[axis] or shape[axis] % count:
        raise UsageError(
            f"{options.where}: {shape[axis]} elements cannot be split into {count} equal parts"
        )
    parts = [x[0]]
    if count > 1:
        sizes = builder.constant("split", np.full(count, shape[axis] // count, np.int64))
        parts = builder.add_several(count, "Split", x[0], sizes, axis=axis)
    if not options.flag("squeeze_axis", False):
        return parts
    sizes_without_axis = [size for place, size in enumerate(shape) if place != axis]
    return [reshape(builder, part, sizes_without_axis) for part in parts]


def _concat(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    return builder.add("Concat", *x, axis=axis_of(options, "dim", 1, len(builder.shape(x[0]))))


def _stack(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    shape = list(builder.shape(x[0]))
    axis = axis_of(options, "axis", 0, len(shape) + 1)
    shape.insert(axis, 1)
    return builder.add("Concat", *(reshape(builder, name, shape) for name in x), axis=axis)


def _tile(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    repeats, shape = options.integers("reps"), list(builder.shape(x[0]))
    data = x[0]
    if len(repeats) > len(shape):
        data = reshape(builder, data, [1] * (len(repeats) - len(shape)) + shape)
    repeats = [1] * (len(shape) - len(repeats)) + repeats
    return builder.add("Tile", data, builder.constant("reps", np.asarray(repeats, np.int64)))


def _repeat(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    """Repeat each element along an axis; the copies of an element are neighbours."""
    data, shape = x[0], builder.shape(x[0])
    if not options.has("axis"):
        shape = (math.prod(shape),)
        data = reshape(builder, data, shape)
    axis = axis_of(options, "axis", 0, len(shape))
    count = options.integer("repeats", 1)
    wide = reshape(builder, data, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    repeats = np.ones(len(shape) + 1, np.int64)
    repeats[axis + 1] = count
    tiled = builder.add("Tile", wide, builder.constant("reps", repeats))
    return reshape(builder, tiled, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))


def _broadcast_to(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    shape, target = builder.shape(x[0]), options.integers("shape")
    if len(target) != len(shape):
        raise UsageError(
            f"{options.where}: {shape} cannot be broadcast to {target}; allowed: {len(shape)}"
            " dimensions"
        )
    sizes = [size or old for size, old in zip(target, shape, strict=True)]
    return builder.add("Expand", x[0], builder.constant("shape", np.asarray(sizes, np.int64)))


def _broadcast_axis(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    sizes = list(builder.shape(x[0]))
    axes, lengths = options.integers("axis"), options.integers("size")
    for axis, length in zip(axes, lengths, strict=True):
        sizes[axis] = length
    return builder.add("Expand", x[0], builder.constant("shape", np.asarray(sizes, np.int64)))


def _broadcast_like(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    if options.has("lhs_axes"):
        raise UsageError(f"{options.where}: lhs_axes cannot be imported")
    shape = builder.constant("shape", np.asarray(builder.shape(x[1]), np.int64))
    return builder.add("Expand", x[0], shape)


def _take(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    options.choice("mode", ("clip",))
    shape = builder.shape(x[0])
    axis = axis_of(options, "axis", 0, len(shape))
    return builder.add("Gather", x[0], indices(builder, x[1], shape[axis]), axis=axis)


def _flip(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    rank = len(builder.shape(x[0]))
    axes = [axis % rank for axis in options.integers("axis")]
    count = len(axes)
    return _cut(builder, x[0], [FAR] * count, [-FAR] * count, axes, [-1] * count)


def _one_hot(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    depth = builder.constant("depth", np.asarray(options.integer("depth", 1)))
    ends = [options.number("off_value", 0.0), options.number("on_value", 1.0)]
    values = builder.constant("values", np.asarray(ends, np.float32))
    return builder.add("OneHot", cast(builder, x[0], np.int64), depth, values)


def _depth_to_space(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    return builder.add("DepthToSpace", x[0], blocksize=options.integer("block_size", 1))


def _space_to_depth(builder: Builder, options: SymbolOptions, x: list[str]) -> str:
    return builder.add("SpaceToDepth", x[0], blocksize=options.integer("block_size", 1))


OPERATORS = {
    "Concat": _concat,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "SliceChannel": _split,
    "SwapAxis": _swap_axes,
    "broadcast_axes": _broadcast_axis,
    "broadcast_axis": _broadcast_axis,
    "broadcast_like": _broadcast_like,
    "broadcast_to": _broadcast_to,
    "concat": _concat,
    "crop": _slice,
    "depth_to_space": _depth_to_space,
    "expand_dims": _expand_dims,
    "flatten": _flatten,
    "flip": _flip,
    "one_hot": _one_hot,
    "repeat": _repeat,
    "reshape": _reshape,
    "reverse": _flip,
    "slice": _slice,
    "slice_axis": _slice_axis,
    "slice_like": _slice_like,
    "space_to_depth": _space_to_depth,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "swapaxes": _swap_axes,
    "take": _take,
    "tile": _tile,
    "transpose": _transpose,
}
