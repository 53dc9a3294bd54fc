"""Operations that move elements, which constants undergo at once.

What these give is a value of the builder's graph whose shape is known; what changes nothing gives
the value itself.
"""

# NumPy's stubs leave the types of what its methods return open.
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

WIDE = ("float32", "int32", "int64")  # dtypes that every engine computes with


class AxisOptions(Protocol):
    """What a layer's options say, in any format."""

    @property
    def where(self) -> str:
        """In errors."""
        ...

    def integer(self, name: str, default: int, /) -> int:
        """Return an integer option, or the default."""
        ...


def axis_of(options: AxisOptions, name: str, default: int, rank: int) -> int:
    """Return an axis counted from the front; UsageError if it does not exist."""
    axis = options.integer(name, default)
    if not -rank <= axis < rank:
        raise UsageError(f"{options.where}: {name} is {axis}; there are {rank} dimensions")
    return axis % rank


def inverse(order: Sequence[int]) -> list[int]:
    """Return the order of axes that undoes another."""
    return [list(order).index(axis) for axis in range(len(order))]


def transpose(b: Builder, name: str, order: Sequence[int]) -> str:
    """Transpose the axes into another order."""
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
    """Cast the elements to another dtype; fractions are cut off."""
    wanted = np.dtype(dtype)
    if wanted == b.dtype(name):
        return name
    kind = helper.np_dtype_to_tensor_dtype(wanted)
    return _folded(b, name, lambda array: array.astype(wanted)) or b.add("Cast", name, to=int(kind))


def expand(b: Builder, name: str, shape: Sequence[int]) -> str:
    """Repeat axes of length 1; the ranks must agree."""
    sizes = tuple(int(size) for size in shape)
    return name if sizes == b.shape(name) else b.add("Expand", name, numbers(b, "shape", sizes))


def cut(
    b: Builder,
    name: str,
    starts: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[int] | None = None,
) -> str:
    """x[starts:ends:steps] of all axes; starts and ends are not negative, steps positive."""
    shape = b.shape(name)
    strides = [1] * len(shape) if steps is None else list(steps)
    parts = list(zip(starts, ends, strides, strict=True))
    axes = [axis for axis, part in enumerate(parts) if part != (0, shape[axis], 1)]
    if not axes:
        return name
    where = tuple(slice(*part) for part in parts)
    return _folded(b, name, lambda array: array[where]) or b.add(
        "Slice",
        name,
        numbers(b, "starts", [parts[axis][0] for axis in axes]),
        numbers(b, "ends", [parts[axis][1] for axis in axes]),
        numbers(b, "axes", axes),
        numbers(b, "steps", [parts[axis][2] for axis in axes]),
    )


def flip(b: Builder, name: str, axes: Sequence[int]) -> str:
    """Reverse axes."""
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
    """Elements put before and after each axis, or taken away where the number is negative.

    Args:
        value: a scalar of the same dtype; default 0.
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
    """Elements put between those of each axis: `holes` many; default 0."""
    for axis, count in enumerate(holes):
        shape = b.shape(name)
        if count == 0 or shape[axis] == 1:
            continue
        apart = reshape(b, name, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
        high = [0] * len(b.shape(apart))
        high[axis + 1] = count
        apart = pad(b, apart, [0] * len(high), high, value)
        length = shape[axis] * (1 + count)
        whole = reshape(b, apart, [*shape[:axis], length, *shape[axis + 1 :]])
        ends = list(b.shape(whole))
        ends[axis] -= count
        name = cut(b, whole, [0] * len(ends), ends)
    return name


def concatenate(b: Builder, names: Sequence[str], axis: int) -> str:
    """Concatenate values along an axis."""
    return names[0] if len(names) == 1 else b.add("Concat", *names, axis=int(axis))


def is_wide(dtype: np.dtype[Any]) -> bool:
    """Tell whether every engine computes with a dtype: float32, int32, int64."""
    return dtype.name in WIDE


def widened(b: Builder, name: str) -> str:
    """The value in a dtype that every engine computes with, the smallest that holds its numbers."""
    dtype = b.dtype(name)
    if is_wide(dtype):
        return name
    is_large = dtype.name in ("uint32", "uint64")
    return cast(b, name, np.float32 if dtype.kind == "f" else np.int64 if is_large else np.int32)


def numbers(b: Builder, stem: str, values: Sequence[int]) -> str:
    """Add a constant int64 vector: a shape, axes and the like."""
    return b.constant(stem, np.array([int(value) for value in values], np.int64))


def scalar(b: Builder, value: float, dtype: npt.DTypeLike = np.float32) -> str:
    """Add a constant of rank 0."""
    return b.constant("number", np.asarray(value, dtype))


def _folded(b: Builder, name: str, change: Callable[[Array], Any]) -> str | None:
    array = b.constant_value(name)
    return None if array is None else b.constant("moved", change(array))
