"""Graphs as bytes that are read fast: all that is known of them is written down, so that no shape
has to be inferred and no weight to be checked."""

# The stubs of onnx leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator

import onnx
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from slipstream.errors import UsageError
from slipstream.infer.graph import Array, Graph
from slipstream.infer.onnx_file import LARGEST_SHAPE, from_model, to_model


def graph_bytes(graph: Graph) -> bytes:
    """The ONNX model of a graph, with operators of ours as they are.

    Raises UsageError where it is larger than the 2 GiB that one ONNX model may have.
    """
    try:
        return to_model(graph).SerializeToString(deterministic=True)
    except ValueError as error:
        raise UsageError(f"the graph makes no ONNX model in one piece: {error}") from error


def read_graph(data: bytes, what: str) -> Graph:
    """The graph that `graph_bytes` wrote; errors, which are UsageError, call it `what`."""
    try:
        model = onnx.load_model_from_string(data)
        del data  # large models are not held twice
        if any(
            tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in _tensors(model.graph)
        ):
            raise UsageError(f"{what}: numbers of it are in another file; nothing else is read")
        large = _taken(model)
        onnx.checker.check_model(model)
        graph = from_model(model)
    except (DecodeError, ValueError, TypeError, onnx.checker.ValidationError) as error:
        raise UsageError(f"{what}: it is no valid ONNX model: {error}") from error
    except onnx.shape_inference.InferenceError as error:
        raise UsageError(f"{what}: its shapes contradict each other: {error}") from error
    for name, array in large.items():
        del graph.inputs[name]
        graph.constants[name] = array
    for name in [*graph.inputs, *graph.outputs]:
        if graph.value(name).fixed is None:
            raise UsageError(f"{what}: the shape of {name!r} is not fixed")
    return graph


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor that is written in a graph, those of its subgraphs too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def _taken(model: ModelProto) -> dict[str, Array]:
    """The large constants, that are inputs of the model from now on."""
    large: dict[str, Array] = {}
    small = []
    for item in model.graph.initializer:
        array = numpy_helper.to_array(item)
        if array.size > LARGEST_SHAPE:
            large[item.name] = array
            model.graph.input.append(
                helper.make_tensor_value_info(item.name, item.data_type, array.shape)
            )
        else:
            small.append(item)
    kept = [onnx.TensorProto.FromString(item.SerializeToString()) for item in small]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return large
