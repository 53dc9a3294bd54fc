"""Operations that only move elements, such as Transpose, Slice and Pad.

An operation on a constant is computed immediately; an operation on another value adds a node. Each
function returns the name of the result in the builder's graph. If an operation changes nothing, the
function returns the operand's name.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from onnx import helper

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.importers.builder import Builder

WIDE = ("float32", "int32", "int64")  # dtypes that every engine can compute with


class AxisOptions(Protocol):
    """Options of a layer, in any model format."""

    @property
    def where(self) -> str:
        """Name of the layer in error messages."""
        ...

    def integer(self, name: str, default: int, /) -> int:
        """Return an option's integer, or `default` if the option is absent."""
        ...


def axis_of(options: AxisOptions, name: str, default: int, rank: int) -> int:
    """Return the axis that the option `name` gives; a negative number counts from the last axis.

    The result is a number from 0 to `rank` - 1.

    Raises:
        UsageError: If the axis does not exist.
    """
    axis = options.integer(name, default)
    if not -rank <= axis < rank:
        raise UsageError(f"{options.where}: {name} is {axis}; allowed: {-rank} to {rank - 1}")
    return axis % rank


def inverse(order: Sequence[int]) -> list[int]:
    """Return the permutation that undoes `order`."""
    return [list(order).index(axis) for axis in range(len(order))]


def transpose(b: Builder, name: str, order: Sequence[int]) -> str:
    """Transpose the axes into the given order."""
    perm = [int(axis) for axis in order]
    if perm == sorted(perm):
        return name
    return _folded(b, name, lambda array: np.transpose(array, perm)) or b.add(
        "Transpose", name, perm=perm
    )


def reshape(b: Builder, name: str, shape: Sequence[int]) -> str:
    """Reshape the value; its elements keep their order."""
    sizes = tuple(int(size) for size in shape)
    if sizes == b.shape(name):
        return name
    return _folded(b, name, lambda array: array.reshape(sizes)) or b.add(
        "Reshape", name, numbers(b, "shape", sizes)
    )


def cast(b: Builder, name: str, dtype: npt.DTypeLike) -> str:
    """Cast the elements to another dtype; casts to integers truncate."""
    target = np.dtype(dtype)
    if target == b.dtype(name):
        return name
    kind = helper.np_dtype_to_tensor_dtype(target)
    return _folded(b, name, lambda array: array.astype(target)) or b.add("Cast", name, to=int(kind))


def expand(b: Builder, name: str, shape: Sequence[int]) -> str:
    """Repeat the elements along axes of length 1, up to a shape of the same rank."""
    sizes = tuple(int(size) for size in shape)
    return name if sizes == b.shape(name) else b.add("Expand", name, numbers(b, "shape", sizes))


def cut(
    b: Builder,
    name: str,
    starts: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[int] | None = None,
) -> str:
    """Slice every axis: x[starts:ends:steps].

    Args:
        starts: First position to keep on each axis, 0 or more.
        ends: Position after the last position to keep on each axis, 0 or more.
        steps: Positive step on each axis (default 1).
    """
    shape = b.shape(name)
    strides = [1] * len(shape) if steps is None else list(steps)
    parts = list(zip(starts, ends, strides, strict=True))
    axes = [axis for axis, part in enumerate(parts) if part != (0, shape[axis], 1)]
    if not axes:
        return name
    slices = tuple(slice(*part) for part in parts)
    return _folded(b, name, lambda array: array[slices]) or b.add(
        "Slice",
        name,
        numbers(b, "starts", [parts[axis][0] for axis in axes]),
        numbers(b, "ends", [parts[axis][1] for axis in axes]),
        numbers(b, "axes", axes),
        numbers(b, "steps", [parts[axis][2] for axis in axes]),
    )


def flip(b: Builder, name: str, axes: Sequence[int]) -> str:
    """Reverse the order of elements along axes."""
    if not axes:
        return name
    last = np.iinfo(np.int64).min
    return _folded(b, name, lambda array: np.flip(array, tuple(axes))) or b.add(
        "Slice",
        name,
        numbers(b, "starts", [-1] * len(axes)),
        numbers(b, "ends", [last] * len(axes)),
        numbers(b, "axes", axes),
        numbers(b, "steps", [-1] * len(axes)),
    )


def pad(
    b: Builder, name: str, low: Sequence[int], high: Sequence[int], value: str | None = None
) -> str:
    """Add elements at the beginning and end of each axis; a negative number removes elements.

    Args:
        low: Number of elements to add at the beginning of each axis.
        high: Number of elements to add at the end of each axis.
        value: Name of the scalar to pad with, which has the operand's dtype (default: a scalar 0).
    """
    shape = b.shape(name)
    name = cut(
        b,
        name,
        [max(-size, 0) for size in low],
        [length - max(-size, 0) for length, size in zip(shape, high, strict=True)],
    )
    pads = [max(int(size), 0) for size in (*low, *high)]
    if not any(pads):
        return name
    filling = value or b.constant("zero", np.zeros((), b.dtype(name)))
    return b.add("Pad", name, numbers(b, "pads", pads), filling)


def spread(b: Builder, name: str, holes: Sequence[int], value: str | None = None) -> str:
    """Insert elements between the elements of each axis.

    Args:
        holes: Number of elements to insert between neighbours on each axis.
        value: Name of the scalar to insert, which has the operand's dtype (default: a scalar 0).
    """
    for axis, count in enumerate(holes):
        shape = b.shape(name)
        if count == 0 or shape[axis] == 1:
            continue
        apart = reshape(b, name, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
        high = [0] * len(b.shape(apart))
        high[axis + 1] = count
        apart = pad(b, apart, [0] * len(high), high, value)
        length = shape[axis] * (1 + count)
        merged = reshape(b, apart, [*shape[:axis], length, *shape[axis + 1 :]])
        ends = list(b.shape(merged))
        ends[axis] -= count
        name = cut(b, merged, [0] * len(ends), ends)
    return name


def concatenate(b: Builder, names: Sequence[str], axis: int) -> str:
    """Concatenate values along an axis."""
    return names[0] if len(names) == 1 else b.add("Concat", *names, axis=int(axis))


def is_wide(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is float32, int32 or int64, which every engine supports."""
    return dtype.name in WIDE


def widened(b: Builder, name: str) -> str:
    """Cast a value to the smallest dtype that holds its numbers and that every engine supports."""
    dtype = b.dtype(name)
    if is_wide(dtype):
        return name
    is_large = dtype.name in ("uint32", "uint64")
    return cast(b, name, np.float32 if dtype.kind == "f" else np.int64 if is_large else np.int32)


def numbers(b: Builder, stem: str, values: Sequence[int]) -> str:
    """Add a constant int64 vector, such as a shape or a list of axes, and return its name."""
    return b.constant(stem, np.array([int(value) for value in values], np.int64))


def scalar(b: Builder, value: float, dtype: npt.DTypeLike = np.float32) -> str:
    """Add a constant without axes (rank 0) and return its name."""
    return b.constant("number", np.asarray(value, dtype))


def _folded(b: Builder, name: str, change: Callable[[Array], Any]) -> str | None:
    array = b.constant_value(name)
    return None if array is None else b.constant("moved", change(array))
