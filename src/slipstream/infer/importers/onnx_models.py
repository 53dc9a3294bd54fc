"""Reader of ONNX models, from files and from bytes."""

# The stubs of onnx do not state all types.
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

from slipstream.errors import UsageError, reason_of
from slipstream.infer.graph import onnx_file
from slipstream.infer.graph.graph import SLIPSTREAM, Array, Graph
from slipstream.infer.importers.external_data import read_with_external
from slipstream.infer.rewrites import OLDEST_OPSET

NEW_OPSET = 17
# In this version of the file format, a constant need not be an input too. Conversion of operators
# adds constants that are no inputs.
NEW_IR = 8
CONTRIB = "com.microsoft"  # domain of ONNX Runtime's own operators, which other engines lack


def read_onnx(source: Path | bytes) -> Graph:
    """Return the graph of a model; a model of an old opset is converted to a newer opset.

    The rewrites of graphs support opsets from `OLDEST_OPSET` on.

    Raises:
        UsageError: If the source is no ONNX model, or has operators that neither ONNX nor ONNX
            Runtime defines; the message lists all such operators.
    """
    what = "these bytes" if isinstance(source, bytes) else str(source)
    large: dict[str, Array] = {}
    try:
        if isinstance(source, bytes):
            model = onnx.load_model_from_string(source)
        else:
            model, large = read_with_external(source)
    except (OSError, DecodeError, ValueError) as error:
        raise UsageError(f"{what}: cannot be read as an ONNX model: {reason_of(error)}") from error
    if not model.graph.node and not model.graph.output:
        raise UsageError(f"{what}: this is no ONNX model, or an empty one")
    return graph_of(model, large, what)


def graph_of(model: ModelProto, large: Mapping[str, Array], what: str) -> Graph:
    """Return the graph of a model in memory.

    Args:
        model: ONNX model, which the function changes.
        large: Arrays of large constants, by name. The model lists these constants as inputs (see
            `read_with_external`); the graph has them as constants.
        what: Name of the model in error messages.

    Raises:
        UsageError: If the model is invalid, or has operators that neither ONNX nor ONNX Runtime
            defines; the message lists all such operators.
    """
    graph = _checked(model, what)
    for name, array in large.items():
        del graph.inputs[name]
        graph.constants[name] = array
    return graph


def _checked(model: ModelProto, what: str) -> Graph:
    _make_dense(model)
    _take_tensors(model, what)
    unknown = _unknown_operators(model)
    if unknown:
        raise UsageError(
            f"{what}: these operators are not part of ONNX: {', '.join(unknown)}; export the model"
            " with ONNX operators, or define these as functions in the model"
        )
    versions = {item.domain: item.version for item in model.opset_import}
    if versions.get("", versions.get("ai.onnx", NEW_OPSET)) < OLDEST_OPSET:
        model = _converted(model, what)
    try:
        _check(model)
        return onnx_file.from_model(model)
    except (ValueError, TypeError, onnx.checker.ValidationError) as error:
        raise UsageError(f"{what}: this is no valid ONNX model: {error}") from error
    except onnx.shape_inference.InferenceError as error:
        raise UsageError(f"{what}: its shapes contradict each other: {error}") from error


def _make_dense(model: ModelProto) -> None:
    """Replace sparse constants by dense constants, because no engine reads sparse constants."""
    for item in model.graph.sparse_initializer:
        values = numpy_helper.to_array(item.values)
        positions = numpy_helper.to_array(item.indices)
        dense = np.zeros(tuple(item.dims), values.dtype)
        if positions.ndim == 2:
            dense[tuple(positions.T)] = values
        else:
            dense.reshape(-1)[positions] = values
        model.graph.initializer.append(numpy_helper.from_array(dense, item.values.name))
    del model.graph.sparse_initializer[:]


def _take_tensors(model: ModelProto, what: str) -> None:
    """Turn outputs that are dictionaries, as in scikit-learn's classifiers, into tensors.

    Raises:
        UsageError: If an output is neither a tensor nor a dictionary of a classifier.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    for output in model.graph.output:
        if not output.type.WhichOneof("value") or output.type.HasField("tensor_type"):
            continue
        node = makers.get(output.name)
        if node is None or node.op_type != "ZipMap":
            kind = output.type.WhichOneof("value").removesuffix("_type")
            raise UsageError(f"{what}: the output {output.name!r} is a {kind}; allowed: tensors")
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
        output.type.Clear()
        output.type.tensor_type.elem_type = TensorProto.FLOAT


def _check(model: ModelProto) -> None:
    """Run ONNX's checker, but accept outputs without a shape, because shapes are inferred later."""
    types = [output.type.tensor_type for output in model.graph.output]
    shapeless = [kind for kind in types if kind.elem_type and not kind.HasField("shape")]
    for kind in shapeless:
        kind.shape.dim.add()
    onnx.checker.check_model(model)
    for kind in shapeless:
        kind.ClearField("shape")


def _unknown_operators(model: ModelProto) -> list[str]:
    standard = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas()}
    defined = {(function.domain, function.name) for function in model.functions}
    inner = (node for function in model.functions for node in function.node)
    nodes = [*_nodes(model.graph), *inner]
    used = {("" if node.domain == "ai.onnx" else node.domain, node.op_type) for node in nodes}
    unknown = sorted(
        (domain, name)
        for domain, name in used - standard - defined
        if domain not in (SLIPSTREAM, CONTRIB)
    )
    return [f"{domain}.{name}" if domain else name for domain, name in unknown]


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph, including the nodes of branches and loop bodies."""
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
    except Exception as error:  # the converter's C++ code has no error class of its own
        raise UsageError(
            f"{what}: its operators are older than version {OLDEST_OPSET}, and"
            f" onnx.version_converter cannot convert them: {error}; export the model again"
        ) from error
