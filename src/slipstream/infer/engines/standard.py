"""Convert a graph to standard ONNX operators, in the precision of a recipe."""

from __future__ import annotations

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.engines.protocol import Recipe
from slipstream.infer.graph import onnx_file
from slipstream.infer.graph.graph import SLIPSTREAM, Array, Graph, Node
from slipstream.infer.native.formats import SMALLEST_MATRIX, Weights
from slipstream.infer.quantize.dynamic import insert_dynamic
from slipstream.infer.quantize.qdq import insert
from slipstream.infer.quantize.shifts import shifted
from slipstream.infer.rewrites.expand import expand


def onnx_bytes(graph: Graph, recipe: Recipe) -> bytes:
    """Return the ONNX model of `standard_graph` as bytes, constants included.

    Raises:
        UnsupportedError: the model is too large, or the precision cannot be written in ONNX.
    """
    try:
        return onnx_file.to_model(standard_graph(graph, recipe)).SerializeToString()
    except ValueError as error:  # protobuf has a limit of 2 GiB
        raise UnsupportedError(f"the graph does not fit one ONNX file: {error}") from error


def standard_graph(graph: Graph, recipe: Recipe, *, signed: bool = False) -> Graph:
    """Return the graph in standard ONNX operators, quantised as the recipe requires.

    Args:
        graph: Graph to convert.
        recipe: Recipe of the graph.
        signed: Whether bytes of int8 are signed and have no zero points (default False).

    Raises:
        UnsupportedError: the recipe's precision cannot be written in ONNX.
    """
    if recipe.precision == "int8":
        shifts = shifted(graph, recipe.shifts, recipe.ranges)
        return insert(shifts, recipe.ranges, signed=signed)
    if recipe.precision == "int8-dynamic":
        return insert_dynamic(shifted(graph, recipe.shifts))
    expanded = expand(graph) if any(node.domain == SLIPSTREAM for node in graph.nodes) else graph
    return compress_weights(expanded) if recipe.precision == "int8-weights" else expanded


def compress_weights(graph: Graph) -> Graph:
    """Return the graph in which weights of products are int8, with one scale per output channel.

    Raises:
        UnsupportedError: no product has a constant matrix that is large enough.
    """
    result = graph.copy()
    compressed: dict[tuple[str, int], str] = {}
    nodes: list[Node] = []
    for node in graph.copy().nodes:
        axis = compressed_axis(graph, node)
        if axis is not None:
            key = node.inputs[1], axis
            if key not in compressed:
                nodes.append(_compressed(result, *key))
                compressed[key] = nodes[-1].output
            node.inputs[1] = compressed[key]
        nodes.append(node)
    if not compressed:
        raise UnsupportedError(
            "int8-weights needs a product with large constant weights; there is none"
        )
    result.nodes = nodes
    result.constants = result.read_constants()
    return result


def compressed_axis(graph: Graph, node: Node) -> int | None:
    """Return the axis of the output channels in a product's weights.

    The result is None if the node is no product, or if its weights cannot be compressed, for
    example because they are computed or small.
    """
    if node.domain or node.op not in ("Conv", "Gemm", "MatMul"):
        return None
    weights = graph.constants.get(node.inputs[1])
    if weights is None or weights.dtype != np.float32 or weights.size < SMALLEST_MATRIX:
        return None
    if node.op == "Conv" or (node.op == "Gemm" and node.get("transB", 0)):
        return 0
    return 1 if weights.ndim == 2 else None


def _compressed(graph: Graph, name: str, axis: int) -> Node:
    """Return a node that turns int8 weights into float32; add the node's constants to the graph."""
    weights_float32 = graph.constants[name]
    weights = Weights.quantise(np.moveaxis(weights_float32, axis, 0), of_bytes=False)
    numbers: Array = np.ascontiguousarray(np.moveaxis(weights.numbers, 0, axis))
    inputs = [
        graph.constant(f"{name}/int8", numbers),
        graph.constant(f"{name}/scale", weights.scale),
    ]
    return Node("DequantizeLinear", inputs, [graph.fresh(f"{name}/float")], {"axis": axis})
