"""ONNX models: files and bytes."""

# The stubs of onnx leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.version_converter
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeProto

from slipstream.errors import UsageError
from slipstream.infer import onnx_file
from slipstream.infer.graph import SLIPSTREAM, Graph
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
    try:
        if isinstance(source, bytes):
            model = onnx.load_model_from_string(source)
        else:
            model = onnx.load(str(source))
    except (OSError, DecodeError, ValueError) as error:
        raise UsageError(f"{what}: no ONNX model can be read: {error}") from error
    if not model.graph.node and not model.graph.output:
        raise UsageError(f"{what}: it is no ONNX model, or an empty one")
    return graph_of(model, what)


def graph_of(model: ModelProto, what: str) -> Graph:
    """The graph of a model in memory; errors call it `what`. See `read_onnx`."""
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
        onnx.checker.check_model(model)
        return onnx_file.from_model(model)
    except (ValueError, TypeError, onnx.checker.ValidationError) as error:
        raise UsageError(f"{what}: it is no valid ONNX model: {error}") from error
    except onnx.shape_inference.InferenceError as error:
        raise UsageError(f"{what}: its shapes contradict each other: {error}") from error


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
