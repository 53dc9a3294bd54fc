"""Changes that graphs need because OpenVINO 2026.4 would compute the unchanged graphs wrongly."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from slipstream.infer.graph.graph import Graph, Node


def _is_compared_maximum(graph: Graph, node: Node) -> bool:
    """Return whether the node is a ReduceMax of floats whose result Equal or IsInf reads.

    For elements that are all minus infinity, ReduceMax of OpenVINO returns the least finite number.
    In attention, all scores of a row are minus infinity if the mask hides everything in the row.
    Models detect such a row by comparing the row's maximum with minus infinity (Equal or IsInf).
    """
    if node.op != "ReduceMax" or node.domain:
        return False
    dtype = graph.value(node.inputs[0]).dtype
    readers = graph.uses().get(node.output, ())
    is_compared = any(reader.op in ("Equal", "IsInf") for reader in readers)
    return is_compared and dtype is not None and dtype.kind == "f"


def with_right_maxima(graph: Graph) -> Graph:
    """Return the graph in which the maximum of elements that are all -inf is -inf.

    Only maxima that Equal or IsInf reads are replaced. The maximum m of x becomes
    `Where(ReduceMin(x == -inf), -inf, m)`.
    """
    wrong = [node for node in graph.nodes if _is_compared_maximum(graph, node)]
    if not wrong:
        return graph
    result = graph.copy()
    names = {node.output for node in wrong}
    nodes: list[Node] = []
    for node in result.nodes:
        nodes += _right_maximum(result, node) if node.output in names else [node]
    result.nodes = nodes
    return result


def _right_maximum(graph: Graph, node: Node) -> list[Node]:
    """Return the nodes that replace a ReduceMax; add the constant that they read to the graph."""
    x, output = node.inputs[0], node.output
    dtype = graph.value(x).dtype
    infinity = graph.constant(f"{output}/infinity", np.array(-np.inf, dtype))
    is_infinite, as_float, all_infinite, condition, maximum = (
        graph.fresh(f"{output}/{name}")
        for name in ("is_infinite", "as_float", "all_infinite", "condition", "maximum")
    )
    rest = node.inputs[1:]
    return [
        Node("Equal", [x, infinity], [is_infinite]),
        Node("Cast", [is_infinite], [as_float], {"to": TensorProto.FLOAT}),
        Node("ReduceMin", [as_float, *rest], [all_infinite], dict(node.attributes)),
        Node("Cast", [all_infinite], [condition], {"to": TensorProto.BOOL}),
        Node("ReduceMax", [x, *rest], [maximum], dict(node.attributes)),
        Node("Where", [condition, infinity, maximum], [output]),
    ]
