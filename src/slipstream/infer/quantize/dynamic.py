"""Compute matrix products in int8; every call measures the ranges of the inputs.

In ONNX, DynamicQuantizeLinear measures one range for all elements of a tensor, and MatMulInteger
multiplies. ONNX Runtime runs the nodes of each product as one kernel.
"""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.graph.graph import Array, Graph, Node
from slipstream.infer.native.formats import SMALLEST_MATRIX, Weights
from slipstream.infer.rewrites.expand import expand

FLOAT32 = 1  # ONNX's number of the type float32


def insert_dynamic(graph: Graph) -> Graph:
    """Return the graph in standard ONNX operators; products with large matrices are in int8.

    Raises:
        UnsupportedError: the graph has no product with a large constant matrix.
    """
    result = expand(graph)
    quantised: dict[str, list[str]] = {}  # by value: names of its uint8 form, scale, zero
    nodes: list[Node] = []
    for node in result.nodes:
        axis = matrix_axis(result, node)
        if axis is None:
            nodes.append(node)
            continue
        source = node.inputs[0]
        if source not in quantised:
            quantised[source] = [
                result.fresh(f"{source}:{part}") for part in ("n", "scale", "zero")
            ]
            nodes.append(Node("DynamicQuantizeLinear", [source], quantised[source]))
        matrix = result.constants[node.inputs[1]]
        nodes += _product(result, node, matrix if axis == 1 else matrix.T, quantised[source])
    if not quantised:
        raise UnsupportedError(
            "int8-dynamic needs a product with a large constant matrix; the graph has none"
        )
    result.nodes = nodes
    result.constants = result.read_constants()
    return result


def matrix_axis(graph: Graph, node: Node) -> int | None:
    """Return the axis of the output channels in the constant matrix of a MatMul or Gemm.

    The result is None for other operators, for a matrix that is no large float32 constant, and for
    a Gemm that transposes its input or scales its terms.
    """
    if node.domain or node.op not in ("Gemm", "MatMul"):
        return None
    matrix = graph.constants.get(node.inputs[1])
    if (
        matrix is None
        or matrix.dtype != np.float32
        or matrix.ndim != 2
        or matrix.size < SMALLEST_MATRIX
    ):
        return None
    if node.get("transA", 0) or node.get("alpha", 1.0) != 1 or node.get("beta", 1.0) != 1:
        return None
    return 0 if node.get("transB", 0) else 1


def _product(graph: Graph, node: Node, matrix: Array, source: list[str]) -> list[Node]:
    """Return the nodes that compute one product in int8; add their constants to the graph."""
    output, (numbers, scale, zero) = node.output, source
    weights = Weights.quantise(matrix.T)
    weight_bytes = graph.constant(f"{output}:int8", np.ascontiguousarray(weights.numbers.T))
    weight_scale = graph.constant(f"{output}:scale", weights.scale)
    names = [graph.fresh(f"{output}:{part}") for part in ("sums", "floats", "unit", "product")]
    sums, floats, unit, product = names
    bias = node.inputs[2] if node.op == "Gemm" and len(node.inputs) > 2 else ""
    nodes = [
        Node("MatMulInteger", [numbers, weight_bytes, zero], [sums]),
        Node("Cast", [sums], [floats], {"to": FLOAT32}),
        Node("Mul", [scale, weight_scale], [unit]),
        Node("Mul", [floats, unit], [product if bias else output]),
    ]
    return [*nodes, Node("Add", [product, bias], [output])] if bias else nodes
