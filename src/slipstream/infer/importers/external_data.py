"""Constants of an ONNX model that are in files beside it: those of more than 2 GB have to be.

They are mapped, so that they take memory only once, when something reads them. A model names files
in its own folder; links in there are the user's own, as those of Hugging Face's cache are.
"""

# The stubs of onnx leave some of its types open.
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

SMALL = 4096  # bytes: shapes follow from such, so they go into the model
PACKED = frozenset(
    kind for kind in (getattr(TensorProto, name, None) for name in ("INT4", "UINT4", "FLOAT4E2M1"))
    if kind is not None
)  # fmt: skip


def read_with_external(path: Path) -> tuple[ModelProto, dict[str, Array]]:
    """A model, and its large constants from other files by name, which are inputs of the model from
    now on.

    Raises UsageError for files that are not there, too short, or in another folder, and what
    `onnx.load` raises.
    """
    model = onnx.load(str(path), load_external_data=False)
    own = {item.name for item in model.graph.initializer}
    large: dict[str, Array] = {}
    for tensor in tensors_in(model.graph):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        array = _mapped(tensor, path)
        if array.nbytes > SMALL and tensor.name in own and tensor.data_type not in PACKED:
            large[tensor.name] = array
        else:
            tensor.raw_data = array.tobytes()
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]
    _make_inputs(model, large)
    return model, large


def _make_inputs(model: ModelProto, large: dict[str, Array]) -> None:
    kinds = {item.name: item.data_type for item in model.graph.initializer}
    kept = [item for item in model.graph.initializer if item.name not in large]
    given = {item.name for item in model.graph.input}
    for name, array in large.items():
        if name not in given:
            info = helper.make_tensor_value_info(name, kinds[name], array.shape)
            model.graph.input.append(info)
    copies = [TensorProto.FromString(item.SerializeToString()) for item in kept]
    del model.graph.initializer[:]
    model.graph.initializer.extend(copies)


def _mapped(tensor: TensorProto, path: Path) -> Array:
    """The numbers of a constant; of types of less than a byte, their bytes."""
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
        raise UsageError(f"{path}: the constant {tensor.name!r} is at no place: {error}") from error
    if length != needed or offset < 0 or offset + needed > file.stat().st_size:
        raise UsageError(
            f"{path}: the constant {tensor.name!r} has {needed} bytes, and {file} has"
            f" {max(file.stat().st_size - offset, 0)} from {offset} on; it is damaged"
        )
    if needed == 0:
        return np.zeros(shape, dtype)
    found = np.memmap(file, dtype, "r", offset, shape)
    return np.asarray(found) if found.flags.aligned else np.array(found)


def _file(name: str, location: str, path: Path) -> Path:
    parts = PurePosixPath(location).parts
    if not parts or PurePosixPath(location).is_absolute() or ".." in parts:
        raise UsageError(
            f"{path}: the constant {name!r} is said to be in {location!r}; it has to be a file in"
            " the model's folder"
        )
    file = path.parent / location
    if not file.is_file():
        raise UsageError(
            f"{path}: the constant {name!r} is in {file}, which is not there; copy it beside the"
            " model"
        )
    return file
