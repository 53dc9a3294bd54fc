"""Convert arrays for engines if the package ml_dtypes defines their dtypes, such as bfloat16."""

# The stubs of onnxruntime and openvino leave their types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from slipstream.infer.graph.added_dtypes import (
    DTYPES,
    as_unsigned,
    from_stored_bytes,
    is_added,
    is_packed,
    stored_bytes,
)
from slipstream.infer.graph.graph import Array

ONNXRUNTIME_TYPES = {f"tensor({TensorProto.DataType.Name(number).lower()})" for number in DTYPES}
OPENVINO_TYPES: dict[str, np.dtype[Any]] = {
    "bf16": DTYPES[TensorProto.BFLOAT16],
    "f8e4m3": DTYPES[TensorProto.FLOAT8E4M3FN],
    "f8e5m2": DTYPES[TensorProto.FLOAT8E5M2],
    "f4e2m1": DTYPES[TensorProto.FLOAT4E2M1],
    "u4": DTYPES[TensorProto.UINT4],
    "i4": DTYPES[TensorProto.INT4],
}


def ort_value(array: Array) -> Any:
    """Return an OrtValue of ONNX Runtime with the elements of an array of any dtype.

    The value uses the memory of the array, unless several elements share a byte in ONNX.
    """
    from onnxruntime import OrtValue

    if not is_added(array.dtype):
        return OrtValue.ortvalue_from_numpy(array)
    number = helper.np_dtype_to_tensor_dtype(array.dtype)
    if not is_packed(array.dtype):
        return OrtValue.ortvalue_from_numpy_with_onnx_type(as_unsigned(array), number)
    value = OrtValue.ortvalue_from_shape_and_type(list(array.shape), number)
    stored = stored_bytes(array)
    ctypes.memmove(value.data_ptr(), stored.ctypes.data, stored.nbytes)
    return value


def array_of_ort_value(value: Any) -> Array:
    """Return a new array with the numbers of an OrtValue of ONNX Runtime."""
    dtype = DTYPES.get(value.element_type())
    if dtype is None:
        return value.numpy()
    stored = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return from_stored_bytes(np.frombuffer(stored, np.uint8), dtype, tuple(value.shape()))


def openvino_tensor(array: Array, port: Any) -> Any:
    """Return an OpenVINO input: a tensor if the array's dtype is of ml_dtypes, else the array."""
    if port.get_element_type().get_type_name() not in OPENVINO_TYPES:
        return array
    import openvino

    tensor = openvino.Tensor(port.get_element_type(), openvino.Shape(list(array.shape)))
    stored = stored_bytes(array)
    ctypes.memmove(tensor.data.ctypes.data, stored.ctypes.data, stored.nbytes)
    return tensor


def array_of_openvino_tensor(tensor: Any) -> Array:
    """Return a new array with the numbers of a tensor of OpenVINO."""
    dtype = OPENVINO_TYPES.get(tensor.get_element_type().get_type_name())
    if dtype is None:
        return np.array(tensor.data)
    stored = np.ascontiguousarray(tensor.data).reshape(-1).view(np.uint8)
    return from_stored_bytes(stored, dtype, tuple(tensor.get_shape()))
