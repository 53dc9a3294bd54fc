"""Graphs as files that are read fast: all that is known of them is written down, so that no shape
has to be inferred, and large constants are beside the model, so that none is copied."""

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

WEIGHTS = "weights-"  # how the names of files begin that have constants only
LARGEST_FILE = 64 * 2**20  # bytes, unless one constant has more: files are checked side by side
ALIGNMENT = 64

Pieces: TypeAlias = "Sequence[bytes | memoryview]"  # of a file, one after the other


def graph_files(graph: Graph, name: str) -> dict[str, Pieces]:
    """The ONNX model of a graph as a file of this name, with operators of ours as they are, and its
    large constants in others, which are not copied."""
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
        place = {"location": f"{WEIGHTS}{len(files) - 1}.bin", "offset": size, "length": len(data)}
        del item.external_data[:]
        item.external_data.extend(
            onnx.StringStringEntryProto(key=key, value=str(value)) for key, value in place.items()
        )
        padding = bytes(-len(data) % ALIGNMENT)
        files[-1] += [data, padding]
        size += len(data) + len(padding)
    named = {f"{WEIGHTS}{at}.bin": pieces for at, pieces in enumerate(files)}
    return {name: [model.SerializeToString(deterministic=True)], **named}


def read_graph(data: bytes, weights: Mapping[str, Array], what: str) -> Graph:
    """The graph that `graph_files` wrote: its model, and the other files as uint8 (n,), which it
    goes on reading. Errors, which are UsageError, call it `what`."""
    try:
        model = onnx.load_model_from_string(data)
        large = _taken(model, weights, what)
        if any(
            tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in tensors_in(model.graph)
        ):
            raise UsageError(f"{what}: numbers of it are in another file; nothing else is read")
        onnx.checker.check_model(model)
        graph = from_model(model)
    except (DecodeError, ValueError, TypeError, KeyError, onnx.checker.ValidationError) as error:
        raise UsageError(f"{what}: it is no valid ONNX model: {error}") from error
    except onnx.shape_inference.InferenceError as error:
        raise UsageError(f"{what}: its shapes contradict each other: {error}") from error
    for name, array in large.items():
        del graph.inputs[name]
        graph.constants[name] = array
    for name in graph.inputs:
        if graph.value(name).fixed is None:
            raise UsageError(f"{what}: the shape of {name!r} is not fixed")
    return graph


def _taken(model: ModelProto, weights: Mapping[str, Array], what: str) -> dict[str, Array]:
    """The large constants, that are inputs of the model from now on."""
    large: dict[str, Array] = {}
    small: list[TensorProto] = []
    for item in model.graph.initializer:
        if item.data_location != TensorProto.EXTERNAL:
            small.append(TensorProto.FromString(item.SerializeToString()))
            continue
        large[item.name] = _elsewhere(item, weights, what)
        model.graph.input.append(
            helper.make_tensor_value_info(item.name, item.data_type, large[item.name].shape)
        )
    del model.graph.initializer[:]
    model.graph.initializer.extend(small)
    return large


def _elsewhere(item: TensorProto, weights: Mapping[str, Array], what: str) -> Array:
    """A constant in another file, where it is there."""
    place = {entry.key: entry.value for entry in item.external_data}
    file = weights.get(place.get("location", ""))
    if file is None:
        raise UsageError(f"{what}: {item.name!r} is in another file; only {WEIGHTS}* are read")
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(item.data_type))
    offset, length = int(place.get("offset", 0)), int(place.get("length", -1))
    shape = tuple(item.dims)
    is_whole = min(shape, default=0) >= 0 and length == math.prod(shape) * dtype.itemsize
    is_there = offset % ALIGNMENT == 0 and 0 <= offset <= len(file) - length
    if dtype.hasobject or not is_whole or not is_there:
        raise UsageError(f"{what}: {item.name!r} is not where it should be, or of another size")
    return file[offset : offset + length].view(dtype).reshape(shape)
