"""ONNX models: files and bytes."""

# The stubs of onnx leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from slipstream.errors import UsageError
from slipstream.infer.graph import onnx_file
from slipstream.infer.graph.graph import SLIPSTREAM, Array, Graph
from slipstream.infer.importers.external_data import read_with_external
from slipstream.infer.rewrites import OLDEST_OPSET

NEW_OPSET = 17
NEW_IR = 8  # in which constants need not be inputs, as those are that conversion adds
CONTRIB = "com.microsoft"  # operators of ONNX Runtime, which other engines lack


def read_onnx(source: Path | bytes) -> Graph:
    """The graph of a model, of operators that the rewrites know.

    Raises UsageError where it is no ONNX model, and for operators that neither ONNX has nor ONNX
    Runtime: all by name.
    """
    what = "these bytes" if isinstance(source, bytes) else str(source)
    large: dict[str, Array] = {}
    try:
        if isinstance(source, bytes):
            model = onnx.load_model_from_string(source)
        else:
            model, large = read_with_external(source)
    except (OSError, DecodeError, ValueError) as error:
        raise UsageError(f"{what}: no ONNX model can be read: {error}") from error
    if not model.graph.node and not model.graph.output:
        raise UsageError(f"{what}: it is no ONNX model, or an empty one")
    return graph_of(model, large, what)


def graph_of(model: ModelProto, large: Mapping[str, Array], what: str) -> Graph:
    """The graph of a model in memory, of which the `large` constants are inputs; errors call it
    `what`. See `read_onnx`."""
    graph = _checked(model, what)
    for name, array in large.items():
        del graph.inputs[name]
        graph.constants[name] = array
    return graph


def _checked(model: ModelProto, what: str) -> Graph:
    _make_dense(model)
    _take_tensors(model, what)
    strange = _strange_operators(model)
    if strange:
        raise UsageError(
            f"{what}: operators that ONNX has not: {', '.join(strange)}; export the model with"
            " those of ONNX, or as functions in the model"
        )
    versions = {item.domain: item.version for item in model.opset_import}
    if versions.get("", versions.get("ai.onnx", NEW_OPSET)) < OLDEST_OPSET:
        model = _converted(model, what)
    try:
        _check(model)
        return onnx_file.from_model(model)
    except (ValueError, TypeError, onnx.checker.ValidationError) as error:
        raise UsageError(f"{what}: it is no valid ONNX model: {error}") from error
    except onnx.shape_inference.InferenceError as error:
        raise UsageError(f"{what}: its shapes contradict each other: {error}") from error


def _make_dense(model: ModelProto) -> None:
    """Constants of which a model has only what is not 0 become whole: no engine reads others."""
    for item in model.graph.sparse_initializer:
        values = numpy_helper.to_array(item.values)
        places = numpy_helper.to_array(item.indices)
        whole = np.zeros(tuple(item.dims), values.dtype)
        if places.ndim == 2:
            whole[tuple(places.T)] = values
        else:
            whole.reshape(-1)[places] = values
        model.graph.initializer.append(numpy_helper.from_array(whole, item.values.name))
    del model.graph.sparse_initializer[:]


def _take_tensors(model: ModelProto, what: str) -> None:
    """Outputs that are dictionaries, as scikit-learn's classifiers have them, become the tensors
    that they are made of. UsageError for others that are no tensors."""
    makers = {name: node for node in model.graph.node for name in node.output}
    for output in model.graph.output:
        if not output.type.WhichOneof("value") or output.type.HasField("tensor_type"):
            continue
        node = makers.get(output.name)
        if node is None or node.op_type != "ZipMap":
            kind = output.type.WhichOneof("value").removesuffix("_type")
            raise UsageError(
                f"{what}: the output {output.name!r} is a {kind}; a package gives tensors"
            )
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
        output.type.Clear()
        output.type.tensor_type.elem_type = TensorProto.FLOAT


def _check(model: ModelProto) -> None:
    """ONNX's check, to which an output without a shape is no error: inference finds it."""
    open_ = [each.type.tensor_type for each in model.graph.output]
    open_ = [each for each in open_ if each.elem_type and not each.HasField("shape")]
    for each in open_:
        each.shape.dim.add()
    onnx.checker.check_model(model)
    for each in open_:
        each.ClearField("shape")


def _strange_operators(model: ModelProto) -> list[str]:
    known = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas()}
    own = {(function.domain, function.name) for function in model.functions}
    nodes = [*_nodes(model.graph), *(node for each in model.functions for node in each.node)]
    used = {("" if node.domain == "ai.onnx" else node.domain, node.op_type) for node in nodes}
    found = sorted(pair for pair in used - known - own if pair[0] not in (SLIPSTREAM, CONTRIB))
    return [f"{domain}.{name}" if domain else name for domain, name in found]


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Its nodes, those of branches and bodies too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _converted(model: ModelProto, what: str) -> ModelProto:
    try:
        converted = onnx.version_converter.convert_version(model, NEW_OPSET)
        converted.ir_version = max(converted.ir_version, NEW_IR)
        return converted
    except Exception as error:  # of its C++ code, of no class of its own
        raise UsageError(
            f"{what}: operators older than version {OLDEST_OPSET}, and onnx.version_converter"
            f" fails: {error}; export the model again"
        ) from error
