"""Conversion of ONNX models to graphs, and of graphs to ONNX models."""

# The stubs of onnx leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import SLIPSTREAM, Array, Attribute, Graph, Node, Subgraph, Value

# Greatest number of elements of a constant on which a shape may depend. Chosen by hand, not
# measured.
LARGEST_SHAPE = 1024
BFLOAT16 = helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)


def read(source: str | Path | bytes) -> Graph:
    """Return the graph of an ONNX model, from its file or its bytes.

    Functions that the model defines are expanded, and shapes are inferred. Raises UsageError for an
    invalid model.
    """
    try:
        if isinstance(source, bytes):
            model = onnx.load_model_from_string(source)
        else:
            model = onnx.load(str(source))
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf, onnx and the file system raise many types
        subject = "these bytes are" if isinstance(source, bytes) else f"{source} is"
        raise UsageError(f"{subject} no valid ONNX model: {error}") from error
    return from_model(model)


def from_model(model: ModelProto) -> Graph:
    """Return the graph of a model in memory, with inferred shapes."""
    if len(model.functions) > 0:
        model = onnx.inliner.inline_local_functions(model)
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    proto = model.graph
    nodes, constants = read_nodes(proto)
    return Graph(
        inputs={item.name: _value(item) for item in proto.input if item.name not in constants},
        outputs=[item.name for item in proto.output],
        nodes=nodes,
        constants=constants,
        values={item.name: _value(item) for item in [*proto.value_info, *proto.output]},
        opsets={_domain(item.domain): item.version for item in model.opset_import},
        name=proto.name or "graph",
    )


def read_nodes(proto: GraphProto) -> tuple[list[Node], dict[str, Array]]:
    """Return the nodes of a graph, or of a subgraph, and its constants by name."""
    constants = {item.name: numpy_helper.to_array(item) for item in proto.initializer}
    nodes: list[Node] = []
    for item in proto.node:
        node = _node(item)
        if node.op == "Constant" and not node.domain:
            constants[node.output] = _constant_value(node)
        else:
            nodes.append(node)
    return nodes, constants


def to_model(graph: Graph) -> ModelProto:
    """Return the ONNX model of a graph; operators of the domain `slipstream` stay as they are."""
    nodes = [
        helper.make_node(
            node.op, node.inputs, node.outputs, name=node.name or None, domain=node.domain or None
        )
        for node in graph.nodes
    ]
    for proto, node in zip(nodes, graph.nodes, strict=True):
        proto.attribute.extend(_attribute(name, item) for name, item in node.attributes.items())
    # Subgraphs may use domains that no node of the graph itself uses.
    domains = {node.domain for node in graph.nodes} | set(graph.opsets) | {""}
    opsets = [helper.make_opsetid(name, graph.opsets.get(name, 1)) for name in sorted(domains)]
    proto = helper.make_graph(
        nodes,
        graph.name,
        [_value_info(name, value) for name, value in graph.inputs.items()],
        [_value_info(name, graph.value(name)) for name in graph.outputs],
        [
            numpy_helper.from_array(np.asarray(array, order="C"), name)
            for name, array in graph.read_constants().items()
        ],
        value_info=[
            _value_info(name, value)
            for name, value in graph.values.items()
            if name not in graph.outputs and value.dtype is not None
        ],
    )
    return helper.make_model(proto, opset_imports=opsets, ir_version=_ir_version(graph))


def split_model(graph: Graph) -> tuple[ModelProto, dict[str, Array]]:
    """Return a pair: the ONNX model of a graph without its large constants, and these constants.

    The model describes the large constants as data of another file, so ONNX's limit of 2 GiB for a
    model does not apply to them. The large constants are C-contiguous arrays, by name; an array
    with another layout is copied.
    """
    large = _large(graph)
    small = {name: array for name, array in graph.constants.items() if name not in large}
    model = to_model(replace(graph, constants=small))
    model.graph.initializer.extend(_elsewhere(name, array) for name, array in large.items())
    return model, large


def bare_graph(
    graph: Graph, is_selected: Callable[[Array], bool]
) -> tuple[Graph, dict[str, Array]]:
    """Turn selected large constants of a graph into inputs of the graph.

    Args:
        graph: Graph, which is not changed.
        is_selected: Function that returns whether a large constant becomes an input.

    Returns:
        A pair: the new graph, whose additional inputs come last, and the C-contiguous arrays of
        these inputs, by name.
    """
    large = {name: array for name, array in _large(graph).items() if is_selected(array)}
    inputs = {name: Value(array.dtype, array.shape) for name, array in large.items()}
    constants = {name: array for name, array in graph.constants.items() if name not in large}
    return replace(graph, inputs={**graph.inputs, **inputs}, constants=constants), large


def _large(graph: Graph) -> dict[str, Array]:
    """Return constants of more than LARGEST_SHAPE elements, by name, as C-contiguous arrays."""
    return {
        name: np.asarray(array, order="C")
        for name, array in graph.read_constants().items()
        if array.size > LARGEST_SHAPE and _has_whole_bytes(array)
    }


def _has_whole_bytes(array: Array) -> bool:
    return array.dtype.kind in "fiub" or array.dtype == BFLOAT16


def _elsewhere(name: str, array: Array) -> TensorProto:
    proto = TensorProto(name=name, dims=array.shape, data_location=TensorProto.EXTERNAL)
    proto.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    proto.external_data.add(key="location", value="memory")
    return proto


def infer_shapes(graph: Graph) -> Graph:
    """Return the graph with newly inferred shapes.

    Only the dtypes and shapes of large constants are used; no shape depends on their elements.
    """
    bare = graph.copy()
    bare.nodes = [_stand_in(node) for node in graph.nodes if not _is_pixels(node)]
    bare.values = {}
    bare.inputs |= {
        node.output: graph.value(node.output) for node in graph.nodes if _is_pixels(node)
    }
    for name, array in graph.constants.items():
        if array.size > LARGEST_SHAPE:
            bare.inputs[name] = Value(array.dtype, array.shape)
            del bare.constants[name]
    inferred = from_model(to_model(bare))
    fixed = {name: value for name, value in graph.values.items() if value.fixed is not None}
    result = graph.copy()
    result.values = {**inferred.values, **fixed}
    return result


def _stand_in(node: Node) -> Node:
    """Return a standard ONNX node whose output has the same dtype and shape as `node`'s output."""
    if node.domain != SLIPSTREAM:
        return node
    op, num_inputs = ("MatMul", 2) if node.op == "Linear" else ("Identity", 1)
    return Node(op, node.inputs[:num_inputs], node.outputs[:1])


def _is_pixels(node: Node) -> bool:
    """Return whether a node is Slipstream's operator Pixels, whose output shape is always known.

    Pixels changes dtype and layout at once, so no single standard node can stand in for it.
    """
    return node.domain == SLIPSTREAM and node.op == "Pixels"


def _ir_version(graph: Graph) -> int:
    return 10 if graph.opsets.get("", 17) <= 23 else 12


def _constant_value(node: Node) -> np.ndarray[Any, Any]:
    ((kind, value),) = node.attributes.items()
    if isinstance(value, np.ndarray):
        return value
    dtypes = {"float": np.float32, "int": np.int64}
    return np.asarray(value, dtype=dtypes.get(kind.removeprefix("value_").removesuffix("s")))


def _node(proto: NodeProto) -> Node:
    attributes = {item.name: _read_attribute(item) for item in proto.attribute}
    return Node(
        op=proto.op_type,
        inputs=list(proto.input),
        outputs=list(proto.output),
        attributes=attributes,
        domain=_domain(proto.domain),
        name=proto.name,
    )


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _read_attribute(proto: AttributeProto) -> Attribute:
    value: Any = helper.get_attribute_value(proto)
    if proto.type == AttributeProto.TENSOR:
        return numpy_helper.to_array(value)
    if proto.type == AttributeProto.GRAPH:
        return Subgraph(value.SerializeToString(), frozenset(_outer_names(value)))
    if proto.type == AttributeProto.STRING:
        return value.decode()
    if proto.type == AttributeProto.STRINGS:
        return [item.decode() for item in value]
    return list(value) if isinstance(value, (list, tuple)) else value


def tensors_in(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield every tensor in a graph and its subgraphs."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from tensors_in(inner)


def _outer_names(graph: GraphProto) -> set[str]:
    defined = {item.name for item in [*graph.input, *graph.initializer]}
    read: set[str] = {item.name for item in graph.output}
    for node in graph.node:
        read.update(node.input)
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                read |= _outer_names(attribute.g)
        defined.update(node.output)
    return read - defined - {""}


def _attribute(name: str, value: Attribute) -> AttributeProto:
    if isinstance(value, np.ndarray):
        return helper.make_attribute(name, numpy_helper.from_array(value))
    if isinstance(value, Subgraph):
        body = GraphProto()
        body.ParseFromString(value.data)
        return helper.make_attribute(name, body)
    if isinstance(value, list) and not value:
        return helper.make_attribute(name, value, attr_type=AttributeProto.INTS)
    return helper.make_attribute(name, value)


def _value(proto: Any) -> Value:
    tensor = proto.type.tensor_type
    if not tensor.elem_type:
        return Value(None, None)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    if not tensor.HasField("shape"):
        return Value(dtype, None)
    return Value(dtype, tuple(_dimension(item) for item in tensor.shape.dim))


def _dimension(proto: Any) -> int | str | None:
    if proto.HasField("dim_value") and proto.dim_value >= 0:
        return int(proto.dim_value)  # some exporters write -1 for an unknown size
    return str(proto.dim_param) if proto.dim_param else None


def _value_info(name: str, value: Value) -> Any:
    if value.dtype is None:
        return helper.make_empty_tensor_value_info(name)
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, kind, value.shape)
