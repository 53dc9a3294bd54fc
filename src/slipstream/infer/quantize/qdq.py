"""Quantise graphs by QuantizeLinear and DequantizeLinear, for ONNX Runtime and OpenVINO."""

# NumPy's stubs leave the element types of arrays open.
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


def insert(
    graph: Graph, ranges: Mapping[str, tuple[float, float]], *, signed: bool = False
) -> Graph:
    """Return the quantised graph in standard ONNX operators.

    Every value in `ranges` is rounded to 256 levels before nodes read it. The weights of matrix
    products and convolutions that read a rounded value become int8, with one scale per output
    channel.

    Args:
        graph: Graph to quantise.
        ranges: Least and greatest number of each value to round, by name.
        signed: Whether rounded values are int8 without a zero point, as TensorRT requires, instead
            of uint8 with one (default False).
    """
    result = expand(graph)
    rounded = {name: f"{name}:rounded" for name in ranges}
    for node in list(result.nodes):
        reads_bytes = any(name in rounded for name in node.inputs)
        node.inputs = [rounded.get(name, name) for name in node.inputs]
        if reads_bytes:
            _round_weights(result, node)
    read = {name for node in result.nodes for name in node.inputs}
    pairs = {
        name: _pair(result, name, rounded[name], *_scale(ends, signed=signed))
        for name, ends in ranges.items()
        if rounded[name] in read
    }
    nodes = [pair for name in result.inputs for pair in pairs.get(name, ())]
    for node in result.nodes:
        nodes.append(node)
        nodes.extend(pair for output in node.outputs for pair in pairs.get(output, ()))
    result.nodes = nodes
    return result


def _scale(ends: tuple[float, float], *, signed: bool) -> tuple[float, Array]:
    """Return the scale and the zero point of a range."""
    if signed:
        return max(abs(end) for end in ends) / 127 or 1.0, np.array(0, np.int8)
    format_ = Bytes.of_range(*ends)
    return format_.scale, np.array(format_.zero, np.uint8)


def _pair(
    graph: Graph, name: str, rounded: str, size: float, zero_point: Array
) -> tuple[Node, Node]:
    scale = graph.constant(f"{name}:scale", np.array(size, np.float32))
    zero = graph.constant(f"{name}:zero", zero_point)
    number = f"{name}:number"
    return (
        Node("QuantizeLinear", [name, scale, zero], [number]),
        Node("DequantizeLinear", [number, scale, zero], [rounded]),
    )


def weights_axis(graph: Graph, node: Node) -> int | None:
    """Return the axis of the output channels in a node's constant weights.

    The result is None if the node is no matrix product or convolution, or if its weights cannot
    become int8.
    """
    weights_float32 = graph.constants.get(node.inputs[1]) if node.op in WEIGHTS else None
    if (
        weights_float32 is None
        or weights_float32.ndim < 2
        or (node.op == "MatMul" and weights_float32.ndim != 2)
    ):
        return None
    if node.op == "ConvTranspose" and node.get("group", 1) != 1:
        return None  # the output channels of all groups are not on one axis
    return 0 if node.op == "Gemm" and node.get("transB", 0) else WEIGHTS[node.op]


def _round_weights(graph: Graph, node: Node) -> None:
    axis = weights_axis(graph, node)
    if axis is None:
        return
    weights_float32 = graph.constants[node.inputs[1]]
    weights = Weights.quantise(np.moveaxis(weights_float32, axis, 0))
    numbers = _shared(graph, f"{node.inputs[1]}:int8", np.moveaxis(weights.numbers, 0, axis))
    scale = _shared(graph, f"{node.inputs[1]}:scale", weights.scale)
    zero = _shared(graph, f"{node.inputs[1]}:zero", np.zeros(len(weights.scale), np.int8))
    output = graph.fresh(f"{node.inputs[1]}:rounded")
    graph.put(
        [Node("DequantizeLinear", [numbers, scale, zero], [output], {"axis": axis})], before=node
    )
    node.inputs[1] = output


def _shared(graph: Graph, name: str, array: Array) -> str:
    """Add a constant unless the graph already has one of this name; return the name."""
    graph.constants.setdefault(name, np.ascontiguousarray(array))
    return name
