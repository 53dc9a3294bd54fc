"""Store graphs so that they can be read fast.

The stored graph contains all known shapes, so that no shape has to be inferred. Large constants are
in files beside the model, so that reading copies none of them.
"""

# The stubs of onnx leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, helper

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.graph.onnx_file import from_model, split_model, tensors_in

WEIGHTS = "weights-"  # prefix of the names of files that contain constants only
# Greatest size of a file of constants in bytes, unless a single constant is larger. Several threads
# check several files at the same time. Chosen by hand, not measured.
LARGEST_FILE = 64 * 2**20
ALIGNMENT = 64  # bytes of a cache line

Pieces: TypeAlias = "Sequence[bytes | memoryview]"  # consecutive pieces of a file's content


def graph_files(graph: Graph, name: str) -> dict[str, Pieces]:
    """Return the files of a graph: the ONNX model, called `name`, and files of large constants.

    Slipstream's own operators are written as such, not expanded into operators of ONNX. The result
    refers to the memory of the large constants, which are not copied.
    """
    model, large = split_model(graph)
    files: list[list[bytes | memoryview]] = []
    size = LARGEST_FILE
    for item in model.graph.initializer:
        if item.name not in large:
            continue
        data = large[item.name].reshape(-1).view(np.uint8).data
        if size + len(data) > LARGEST_FILE:
            files.append([])
            size = 0
        entry = {"location": f"{WEIGHTS}{len(files) - 1}.bin", "offset": size, "length": len(data)}
        del item.external_data[:]
        item.external_data.extend(
            onnx.StringStringEntryProto(key=key, value=str(value)) for key, value in entry.items()
        )
        padding = bytes(-len(data) % ALIGNMENT)
        files[-1] += [data, padding]
        size += len(data) + len(padding)
    weights = {f"{WEIGHTS}{at}.bin": pieces for at, pieces in enumerate(files)}
    return {name: [model.SerializeToString(deterministic=True)], **weights}


def read_graph(data: bytes, weights: Mapping[str, Array], label: str) -> Graph:
    """Return the graph that `graph_files` wrote.

    Args:
        data: Content of the ONNX model.
        weights: Contents of the files of constants, uint8 (n,), by file name. The constants of the
            graph use the memory of the arrays in `weights`.
        label: Name of the graph in error messages.

    Raises:
        UsageError: the model is not valid, or refers to a file that is not in `weights`.
    """
    try:
        model = onnx.load_model_from_string(data)
        large = _take_large_constants(model, weights, label)
        if any(
            tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in tensors_in(model.graph)
        ):
            raise UsageError(f"{label}: it refers to constants in another file, which is not read")
        onnx.checker.check_model(model)
        graph = from_model(model)
    except (DecodeError, ValueError, TypeError, KeyError, onnx.checker.ValidationError) as error:
        raise UsageError(f"{label}: it is no valid ONNX model: {error}") from error
    except onnx.shape_inference.InferenceError as error:
        raise UsageError(f"{label}: its shapes contradict each other: {error}") from error
    for name, array in large.items():
        del graph.inputs[name]
        graph.constants[name] = array
    for name in graph.inputs:
        if graph.value(name).fixed is None:
            raise UsageError(f"{label}: the input {name!r} has no fixed shape")
    return graph


def _take_large_constants(
    model: ModelProto, weights: Mapping[str, Array], label: str
) -> dict[str, Array]:
    """Turn the large constants of a model into inputs, and return their arrays."""
    large: dict[str, Array] = {}
    small: list[TensorProto] = []
    for item in model.graph.initializer:
        if item.data_location != TensorProto.EXTERNAL:
            small.append(TensorProto.FromString(item.SerializeToString()))
            continue
        large[item.name] = _external_array(item, weights, label)
        model.graph.input.append(
            helper.make_tensor_value_info(item.name, item.data_type, large[item.name].shape)
        )
    del model.graph.initializer[:]
    model.graph.initializer.extend(small)
    return large


def _external_array(item: TensorProto, weights: Mapping[str, Array], label: str) -> Array:
    """Return the array of a constant; the array shares the memory of the file's content."""
    entries = {entry.key: entry.value for entry in item.external_data}
    file = weights.get(entries.get("location", ""))
    if file is None:
        raise UsageError(f"{label}: {item.name!r} is in another file; only {WEIGHTS}* are read")
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(item.data_type))
    offset, length = int(entries.get("offset", 0)), int(entries.get("length", -1))
    shape = tuple(item.dims)
    is_of_size = min(shape, default=0) >= 0 and length == math.prod(shape) * dtype.itemsize
    is_inside = offset % ALIGNMENT == 0 and 0 <= offset <= len(file) - length
    if dtype.hasobject or not is_of_size or not is_inside:
        raise UsageError(
            f"{label}: {item.name!r} is said to be {length} bytes at offset {offset}, which does "
            f"not fit its shape {shape}, its type {dtype} or the file of {len(file)} bytes"
        )
    return file[offset : offset + length].view(dtype).reshape(shape)
