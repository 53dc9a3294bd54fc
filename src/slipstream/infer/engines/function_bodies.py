"""Replace each operator that an engine lacks with ONNX's definition of this operator."""

# The stubs of onnx do not state the types of the methods of a schema.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from onnx import FunctionProto, ModelProto, NodeProto, TypeProto, defs, helper

from slipstream.infer.graph.graph import Graph
from slipstream.infer.graph.onnx_file import bare_graph, from_model, to_model

DOMAIN = "slipstream.functions"  # domain of the functions while they are expanded


def with_functions_expanded(graph: Graph, ops: Collection[str]) -> Graph:
    """Return the graph with each given operator replaced by ONNX's definition of it.

    Args:
        graph: Graph, which is not changed. If it has none of the operators, the result is the same
            object.
        ops: Names of the operators to replace.
    """
    if not any(node.op in ops and not node.domain for node in graph.nodes):
        return graph
    bare, large = bare_graph(graph, lambda array: True)
    model = to_model(bare)
    for number, node in enumerate(model.graph.node):
        if node.op_type in ops and not node.domain:
            function = _body(model, bare, node)
            function.domain, function.name = DOMAIN, f"{node.op_type}_{number}"
            node.domain, node.op_type = function.domain, function.name
            model.functions.append(function)
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    result = from_model(model)
    result.inputs = {name: value for name, value in result.inputs.items() if name not in large}
    result.constants |= large
    return result


def _body(model: ModelProto, graph: Graph, node: NodeProto) -> FunctionProto:
    """Return ONNX's definition of a node's operator, for the node's attributes and input types."""
    schema = defs.get_schema(node.op_type, graph.opsets.get("", 17))
    types: list[bytes] = []
    for name in node.input:
        value = graph.value(name) if name else None
        kind = TypeProto()
        if value is not None and value.dtype is not None:
            number = helper.np_dtype_to_tensor_dtype(value.dtype)
            kind = helper.make_tensor_type_proto(number, value.shape)
        types.append(kind.SerializeToString())
    expanded: Any = schema  # the stubs lack the method
    return FunctionProto.FromString(
        expanded.get_context_dependent_function(node.SerializeToString(), types)
    )
