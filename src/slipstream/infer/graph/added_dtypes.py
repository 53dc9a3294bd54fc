"""The dtypes that ml_dtypes adds to NumPy, such as bfloat16, float8 and int4.

NumPy cannot store arrays of a dtype of ml_dtypes in files, and engines do not take such arrays.
Files and engines get the bytes in which ONNX stores the numbers. Numbers of 4 and 2 bits share a
byte, with the first number in the lowest bits.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from slipstream.infer.graph.graph import Array

ADDED = 2  # `isbuiltin` of a dtype that another package has registered
DTYPES: dict[int, np.dtype[Any]] = {
    number: dtype
    for number in TensorProto.DataType.values()
    if number and (dtype := helper.tensor_dtype_to_np_dtype(number)).isbuiltin == ADDED
}


def is_added(dtype: np.dtype[Any]) -> bool:
    """Return whether ml_dtypes has added the dtype to NumPy."""
    return dtype.isbuiltin == ADDED


def is_packed(dtype: np.dtype[Any]) -> bool:
    """Return whether several elements of the dtype share a byte in ONNX."""
    return _bits(dtype) < 8


def as_unsigned(array: Array) -> Array:
    """View an array of a dtype of ml_dtypes as unsigned integers; return other arrays unchanged."""
    return array.view(f"u{array.dtype.itemsize}") if is_added(array.dtype) else array


def from_unsigned(array: Array, dtype: str) -> Array:
    """Return the array that `as_unsigned` turned into unsigned integers."""
    wanted = np.dtype(dtype)
    is_unsigned = array.dtype == np.dtype(f"u{wanted.itemsize}")
    return array.view(wanted) if is_added(wanted) and is_unsigned else array


def stored_bytes(array: Array) -> Array:
    """Return a 1-D uint8 array: the bytes in which ONNX stores an array of a dtype of ml_dtypes."""
    numbers = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    bits = _bits(array.dtype)
    if bits >= 8:
        return numbers
    per_byte = 8 // bits
    padded = np.zeros(-(-numbers.size // per_byte) * per_byte, np.uint8)
    padded[: numbers.size] = numbers & (2**bits - 1)
    parts = padded.reshape(-1, per_byte) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(parts, axis=1)


def from_stored_bytes(stored: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return a new array of a dtype of ml_dtypes, from the bytes in which ONNX stores it."""
    bits = _bits(dtype)
    if bits >= 8:
        return stored.copy().view(dtype).reshape(shape)
    parts = stored[:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2**bits - 1)
    numbers = parts.reshape(-1)[: int(np.prod(shape))]
    return np.ascontiguousarray(numbers).view(dtype).reshape(shape)


def _bits(dtype: np.dtype[Any]) -> int:
    for name, bits in (("int4", 4), ("int2", 2), ("float4", 4)):
        if dtype.name.removeprefix("u").startswith(name):
            return bits
    return 8 * dtype.itemsize
