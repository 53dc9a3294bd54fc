"""Ranges as QuantizeLinear and DequantizeLinear: how ONNX Runtime and OpenVINO take them."""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from slipstream.infer.graph.graph import Array, Graph, Node
from slipstream.infer.native.formats import Bytes, Weights
from slipstream.infer.rewrites.expand import expand

# Operators whose constant weights become int8, and the axis of their output channels.
WEIGHTS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}


def insert(graph: Graph, ranges: Mapping[str, tuple[float, float]]) -> Graph:
    """The graph in ONNX's own operators, every value in `ranges` rounded to 256 levels before it is
    read, weights of the products that read one rounded to int8 per output channel."""
    result = expand(graph)
    rounded = {name: f"{name}:rounded" for name in ranges}
    for node in list(result.nodes):
        quantised = any(name in rounded for name in node.inputs)
        node.inputs = [rounded.get(name, name) for name in node.inputs]
        if quantised:
            _round_weights(result, node)
    read = {name for node in result.nodes for name in node.inputs}
    pairs = {
        name: _pair(result, name, rounded[name], Bytes.of_range(*ends))
        for name, ends in ranges.items()
        if rounded[name] in read
    }
    nodes = [pair for name in result.inputs for pair in pairs.get(name, ())]
    for node in result.nodes:
        nodes.append(node)
        nodes.extend(pair for output in node.outputs for pair in pairs.get(output, ()))
    result.nodes = nodes
    return result


def _pair(graph: Graph, name: str, rounded: str, format_: Bytes) -> tuple[Node, Node]:
    scale = graph.constant(f"{name}:scale", np.array(format_.scale, np.float32))
    zero = graph.constant(f"{name}:zero", np.array(format_.zero, np.uint8))
    number = f"{name}:number"
    return (
        Node("QuantizeLinear", [name, scale, zero], [number]),
        Node("DequantizeLinear", [number, scale, zero], [rounded]),
    )


def weights_axis(graph: Graph, node: Node) -> int | None:
    """The axis of output channels of a product's constant weights that can become int8; None of any
    other node."""
    real = graph.constants.get(node.inputs[1]) if node.op in WEIGHTS else None
    if real is None or real.ndim < 2 or (node.op == "MatMul" and real.ndim != 2):
        return None
    if node.op == "ConvTranspose" and node.get("group", 1) != 1:
        return None  # output channels of a group are not an axis of their own
    return 0 if node.op == "Gemm" and node.get("transB", 0) else WEIGHTS[node.op]


def _round_weights(graph: Graph, node: Node) -> None:
    axis = weights_axis(graph, node)
    if axis is None:
        return
    real = graph.constants[node.inputs[1]]
    weights = Weights.quantise(np.moveaxis(real, axis, 0))
    numbers = _shared(graph, f"{node.inputs[1]}:int8", np.moveaxis(weights.numbers, 0, axis))
    scale = _shared(graph, f"{node.inputs[1]}:scale", weights.scale)
    zero = _shared(graph, f"{node.inputs[1]}:zero", np.zeros(len(weights.scale), np.int8))
    output = graph.fresh(f"{node.inputs[1]}:rounded")
    graph.put(
        [Node("DequantizeLinear", [numbers, scale, zero], [output], {"axis": axis})], before=node
    )
    node.inputs[1] = output


def _shared(graph: Graph, name: str, array: Array) -> str:
    """The constant of this name, made by the first who needs it."""
    graph.constants.setdefault(name, np.ascontiguousarray(array))
    return name
