"""Arrays of any kind as the engine uses them: an address, a count and an element type."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slipstream import _core
from slipstream.errors import UsageError

Array = Any
"""Anything with the buffer protocol or `__dlpack__`: NumPy, array.array, a CPU tensor."""

_NUMPY_DTYPES: dict[_core.DType, str] = {
    _core.DType.INT8: "int8",
    _core.DType.UINT8: "uint8",
    _core.DType.INT16: "int16",
    _core.DType.UINT16: "uint16",
    _core.DType.INT32: "int32",
    _core.DType.UINT32: "uint32",
    _core.DType.INT64: "int64",
    _core.DType.UINT64: "uint64",
    _core.DType.FLOAT16: "float16",
    _core.DType.FLOAT32: "float32",
    _core.DType.FLOAT64: "float64",
    _core.DType.COMPLEX64: "complex64",
    _core.DType.COMPLEX128: "complex128",
    _core.DType.BOOL: "bool",
}


class View(NamedTuple):
    """Memory of a contiguous array; the memory is valid as long as `owner` lives."""

    address: int
    elements: int
    dtype: _core.DType
    shape: tuple[int, ...]
    writable: bool
    owner: object


def view(array: Array) -> View:
    """Return the memory of an array, which must be contiguous and in CPU memory.

    Raises:
        UsageError: the argument is not a contiguous array, or its element type is not supported.
        UnsupportedError: the array is in the memory of a GPU or of another device.
    """
    try:
        return View(*_core.array_view(array))
    except UsageError:
        if not issubclass(type(array), np.ndarray) or _is_known(array.dtype):
            raise
        return _numpy_view(array)


def writable(view: View, collective: str) -> View:
    """Return a view unchanged, after checking that a result can be written to its memory.

    Raises:
        UsageError: the memory is read-only.
    """
    if not view.writable:
        raise UsageError(f"{collective}: the output is read-only; pass a writable array as out=")
    return view


def output_view(array: Array, count: int, dtype: _core.DType, collective: str) -> View:
    """Check that a result can be written to an array, and return the memory of the array.

    Args:
        array: Array for the result.
        count: Required number of elements.
        dtype: Required element type.
        collective: Name of the collective, for messages.

    Raises:
        UsageError: the array is read-only, has another number of elements than `count`, or has
            another element type than `dtype`.
    """
    out = writable(view(array), collective)
    if out.elements != count or out.dtype != dtype:
        raise UsageError(
            f"{collective}: the output has {out.elements} elements of {_name(out.dtype)}; allowed:"
            f" {count} of {_name(dtype)}"
        )
    return out


def empty(shape: tuple[int, ...], dtype: _core.DType, collective: str) -> NDArray[Any]:
    """Return a new array for a result.

    Raises:
        UsageError: NumPy lacks the element type (bfloat16 without ml_dtypes).
    """
    if dtype in _NUMPY_DTYPES:
        return np.empty(shape, _NUMPY_DTYPES[dtype])
    try:
        return np.empty(shape, "bfloat16")  # ml_dtypes registers the name
    except TypeError as error:
        raise UsageError(
            f"{collective}: NumPy has no type bfloat16 in this process; pass the result array as"
            " out=, or import ml_dtypes first"
        ) from error


def _is_known(dtype: Any) -> bool:
    return dtype.isnative and dtype.name in _NUMPY_DTYPES.values()


def _numpy_view(array: Array) -> View:
    """Return the memory of a NumPy array whose element type the buffer protocol does not support.

    Raises:
        UsageError: the engine does not support the element type.
    """
    if array.dtype.name == "bfloat16":  # from ml_dtypes
        return view(array.view(np.uint16))._replace(dtype=_core.DType.BFLOAT16)
    allowed = ", ".join([*_NUMPY_DTYPES.values(), "bfloat16"])
    raise UsageError(
        f"the array has elements of type {array.dtype}, {array.dtype.itemsize} bytes each; allowed,"
        f" in the byte order of this machine: {allowed}; convert the array first"
    )


def _name(dtype: _core.DType) -> str:
    return dtype.name.lower()
