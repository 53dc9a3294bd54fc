"""The datatypes of the Open Inference Protocol, and the bytes of their elements.

Source: "Open Inference Protocol", version 2 (github.com/kserve/open-inference-protocol), and, for
binary tensors, Triton's extension "Binary tensor data".
"""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import ml_dtypes as ml_dtypes  # gives NumPy bfloat16
import numpy as np

from slipstream.infer.graph.graph import Array
from slipstream.serve.refusals import invalid

_OF_NUMPY = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16",
    "float32": "FP32", "float64": "FP64", "bfloat16": "BF16",
}  # fmt: skip
_TO_NUMPY = {name: np.dtype(dtype) for dtype, name in _OF_NUMPY.items()}
_OF_DTYPE = {dtype: name for name, dtype in _TO_NUMPY.items()}
BYTES = "BYTES"
# Header field with the length of the JSON, behind which the binary tensors begin.
JSON_LENGTH = "inference-header-content-length"
_LENGTH = struct.Struct("<I")


def datatype_of(dtype: str | np.dtype[Any]) -> str:
    """Return the protocol's name of a NumPy dtype; raise KeyError if the protocol has no name."""
    return _OF_DTYPE[np.dtype(dtype)]


def has_datatype(dtype: str | np.dtype[Any]) -> bool:
    """Return whether the protocol has a name for a dtype of NumPy."""
    return np.dtype(dtype) in _OF_DTYPE


def array_of(raw: memoryview, datatype: str, shape: Sequence[int], name: str) -> Array:
    """Return a tensor that shares the memory of the received bytes.

    Args:
        raw: Elements in C order, little-endian.
        datatype: Datatype of the protocol, except BYTES.
        shape: Shape of the tensor, without negative sizes.
        name: Name of the input, for error messages.

    Raises RequestRefusedError if the number of bytes does not fit the shape.
    """
    dtype = _numpy_of(datatype, name)
    wanted = number_of(shape) * dtype.itemsize
    if len(raw) != wanted:
        raise invalid(
            f"input {name!r} has {len(raw)} bytes; {datatype} of the shape {list(shape)} has"
            f" {wanted}"
        )
    return np.frombuffer(raw, dtype).reshape(shape)


def array_of_numbers(data: Any, datatype: str, shape: Sequence[int], name: str) -> Array:
    """Return a tensor from the numbers in JSON, which may be a flat list or nested lists.

    null means NaN, as in responses.

    Raises RequestRefusedError if an element does not fit the datatype, or if the number of elements
    does not fit the shape.
    """
    dtype = _numpy_of(datatype, name)
    try:
        found = np.array(data)
    except ValueError as error:
        raise invalid(f"input {name!r}: data are not lists of equal length") from error
    if dtype.kind == "f" and found.dtype == object:
        found = _without_null(found)
    kinds = "b" if dtype.kind == "b" else "iu" if dtype.kind in "iu" else "iuf"
    if found.size and found.dtype.kind not in kinds:
        raise invalid(f"input {name!r}: data are {_words(found)}; {datatype} is needed")
    if found.size != number_of(shape):
        raise invalid(
            f"input {name!r} has {found.size} numbers; the shape {list(shape)} needs"
            f" {number_of(shape)}"
        )
    with np.errstate(over="ignore"):
        made = found.astype(dtype)
    if dtype.kind in "iu" and found.size and not np.array_equal(made, found):
        raise invalid(f"input {name!r} has numbers beyond the range of {datatype}")
    return made.reshape(shape)


def _without_null(found: Array) -> Array:
    """Return numbers and nulls as an array of float64 with NaN; return other elements unchanged."""
    if not all(each is None or type(each) in (int, float) for each in found.ravel().tolist()):
        return found
    return np.where(found == None, np.nan, found).astype(np.float64)  # noqa: E711  by element


def byte_strings(raw: memoryview, shape: Sequence[int], name: str) -> list[memoryview]:
    """Return the elements of a tensor of BYTES; in `raw`, its length precedes each element."""
    found: list[memoryview] = []
    at = 0
    while at < len(raw):
        if at + _LENGTH.size > len(raw):
            raise invalid(f"input {name!r}: the length of element {len(found)} is cut off")
        (length,) = _LENGTH.unpack_from(raw, at)
        at += _LENGTH.size
        if at + length > len(raw):
            raise invalid(f"input {name!r}: element {len(found)} ends beyond the end")
        found.append(raw[at : at + length])
        at += length
    if len(found) != number_of(shape):
        raise invalid(
            f"input {name!r} has {len(found)} elements; the shape {list(shape)} needs"
            f" {number_of(shape)}"
        )
    return found


def number_of(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape."""
    found = 1
    for size in shape:
        found *= size
    return found


def _numpy_of(datatype: str, name: str) -> np.dtype[Any]:
    if datatype not in _TO_NUMPY:
        raise invalid(
            f"input {name!r} is {datatype[:32]!r}; allowed: {', '.join([*_TO_NUMPY, BYTES])}"
        )
    return _TO_NUMPY[datatype]


def _words(found: Array) -> str:
    return {"U": "strings", "b": "booleans", "f": "fractions", "O": "objects"}.get(
        found.dtype.kind, "no numbers"
    )
