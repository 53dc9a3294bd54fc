"""Products of matrices by bytes whose ranges every call finds for itself: as ONNX writes it.

DynamicQuantizeLinear finds one range for all of a value; MatMulInteger multiplies. ONNX Runtime
makes one kernel of the nodes of each product.
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

FLOAT32 = 1  # ONNX's number of the type


def insert_dynamic(graph: Graph) -> Graph:
    """The graph in ONNX's own operators, products with large constant matrices by bytes.

    Raises UnsupportedError where it has none.
    """
    result = expand(graph)
    quantised: dict[str, list[str]] = {}  # value -> its numbers, their scale, their zero
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
        raise UnsupportedError("no product of the graph has a large constant matrix")
    result.nodes = nodes
    result.constants = result.read_constants()
    return result


def matrix_axis(graph: Graph, node: Node) -> int | None:
    """The axis of outputs of the constant of a product that can be one of bytes; None of any other
    node."""
    if node.domain or node.op not in ("Gemm", "MatMul"):
        return None
    real = graph.constants.get(node.inputs[1])
    if real is None or real.dtype != np.float32 or real.ndim != 2 or real.size < SMALLEST_MATRIX:
        return None
    if node.get("transA", 0) or node.get("alpha", 1.0) != 1 or node.get("beta", 1.0) != 1:
        return None
    return 0 if node.get("transB", 0) else 1


def _product(graph: Graph, node: Node, matrix: Array, source: list[str]) -> list[Node]:
    """The nodes of one product; adds its constants to the graph."""
    stem, (numbers, scale, zero) = node.output, source
    weights = Weights.quantise(matrix.T)
    by = graph.constant(f"{stem}:int8", np.ascontiguousarray(weights.numbers.T))
    by_scale = graph.constant(f"{stem}:scale", weights.scale)
    names = [graph.fresh(f"{stem}:{part}") for part in ("sums", "floats", "worth", "product")]
    sums, floats, worth, product = names
    bias = node.inputs[2] if node.op == "Gemm" and len(node.inputs) > 2 else ""
    made = [
        Node("MatMulInteger", [numbers, by, zero], [sums]),
        Node("Cast", [sums], [floats], {"to": FLOAT32}),
        Node("Mul", [scale, by_scale], [worth]),
        Node("Mul", [floats, worth], [product if bias else stem]),
    ]
    return [*made, Node("Add", [product, bias], [stem])] if bias else made
