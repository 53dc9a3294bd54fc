"""Constants of an ONNX model that are stored in files beside the model.

ONNX requires files beside the model if the model has more than 2 GB. The files of constants are
memory-mapped, so that a constant takes no memory until it is read. A model may name only files in
its own folder. The files of constants may be links, because the cache of Hugging Face consists of
links.
"""

# The stubs of onnx do not state all types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.graph.onnx_file import tensors_in

SMALL = 4096  # bytes; smaller constants go into the model, where shape inference can read them
PACKED = frozenset(
    kind for kind in (getattr(TensorProto, name, None) for name in ("INT4", "UINT4", "FLOAT4E2M1"))
    if kind is not None
)  # fmt: skip


def read_with_external(path: Path) -> tuple[ModelProto, dict[str, Array]]:
    """Return a model whose large external constants are inputs, and these constants by name.

    Raises:
        UsageError: If a file is missing, too short or in another folder. Errors of `onnx.load` are
            not converted.
    """
    model = onnx.load(str(path), load_external_data=False)
    initializers = {item.name for item in model.graph.initializer}
    large: dict[str, Array] = {}
    for tensor in tensors_in(model.graph):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        array = _mapped(tensor, path)
        if array.nbytes > SMALL and tensor.name in initializers and tensor.data_type not in PACKED:
            large[tensor.name] = array
        else:
            tensor.raw_data = array.tobytes()
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]
    _make_inputs(model, large)
    return model, large


def _make_inputs(model: ModelProto, large: dict[str, Array]) -> None:
    types = {item.name: item.data_type for item in model.graph.initializer}
    remaining = [item for item in model.graph.initializer if item.name not in large]
    inputs = {item.name for item in model.graph.input}
    for name, array in large.items():
        if name not in inputs:
            info = helper.make_tensor_value_info(name, types[name], array.shape)
            model.graph.input.append(info)
    copies = [TensorProto.FromString(item.SerializeToString()) for item in remaining]
    del model.graph.initializer[:]
    model.graph.initializer.extend(copies)


def _mapped(tensor: TensorProto, path: Path) -> Array:
    """Return a constant's elements, or its packed bytes if several elements share a byte."""
    place = {entry.key: entry.value for entry in tensor.external_data}
    file = _file(tensor.name, place.get("location", ""), path)
    is_packed = tensor.data_type in PACKED
    dtype = np.dtype(np.uint8 if is_packed else helper.tensor_dtype_to_np_dtype(tensor.data_type))
    if min(tensor.dims, default=0) < 0:
        raise UsageError(f"{path}: the constant {tensor.name!r} has the shape {list(tensor.dims)}")
    count = math.prod(tensor.dims)
    shape = ((count + 1) // 2,) if is_packed else tuple(tensor.dims)
    needed = math.prod(shape) * dtype.itemsize
    try:
        offset, length = int(place.get("offset", 0)), int(place.get("length", needed))
    except ValueError as error:
        raise UsageError(
            f"{path}: the place of the constant {tensor.name!r} in {file} is no number: {error}"
        ) from error
    if length != needed or offset < 0 or offset + needed > file.stat().st_size:
        raise UsageError(
            f"{path}: the constant {tensor.name!r} needs {needed} bytes, but {file} has"
            f" {max(file.stat().st_size - offset, 0)} from byte {offset} on; the model is damaged"
        )
    if needed == 0:
        return np.zeros(shape, dtype)
    mapped = np.memmap(file, dtype, "r", offset, shape)
    return np.asarray(mapped) if mapped.flags.aligned else np.array(mapped)


def _file(name: str, location: str, path: Path) -> Path:
    parts = PurePosixPath(location).parts
    if not parts or PurePosixPath(location).is_absolute() or ".." in parts:
        raise UsageError(
            f"{path}: the constant {name!r} is stored in {location!r}; allowed: a file in the"
            " model's folder"
        )
    file = path.parent / location
    if not file.is_file():
        raise UsageError(
            f"{path}: the constant {name!r} is stored in {file}, which does not exist; copy that"
            " file beside the model"
        )
    return file
