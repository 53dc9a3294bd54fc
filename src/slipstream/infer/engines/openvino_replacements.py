"""Operators that OpenVINO 2026.4 lacks, written with operators that it has."""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from onnx import helper

from slipstream.infer.graph.graph import Array, Graph, Node


def with_replacements(graph: Graph) -> Graph:
    """Return the graph with TensorScatter, ArrayFeatureExtractor and Binarizer replaced.

    A node is kept if a dtype or shape that its replacement depends on is unknown.
    """
    if not any((node.domain, node.op) in REPLACEMENTS for node in graph.nodes):
        return graph
    result = graph.copy()
    nodes: list[Node] = []
    for node in result.nodes:
        replace = REPLACEMENTS.get((node.domain, node.op), lambda graph, node: [node])
        nodes += replace(result, node)
    result.nodes = nodes
    return result


def _tensor_scatter(graph: Graph, node: Node) -> list[Node]:
    """Return the nodes that replace TensorScatter, or the node itself if a shape is unknown."""
    cache, update, *first = [name for name in node.inputs if name]
    shape, length = graph.value(update).fixed, graph.value(cache).fixed
    if shape is None or length is None:
        return [node]
    axis = int(node.get("axis", -2)) % len(shape)
    steps = [size if at == axis else 1 for at, size in enumerate(shape)]
    names = ("starts", "positions", "wrapped", "everywhere")
    starts, positions, wrapped, everywhere = (
        graph.fresh(f"{node.output}/{name}") for name in names
    )

    def constant(name: str, numbers: object) -> str:
        return graph.constant(f"{node.output}/{name}", np.array(numbers, np.int64))

    start = first[0] if first else constant("zeros", [0] * shape[0])
    one_each = constant("one_each", [shape[0], *[1] * (len(shape) - 1)])
    numbers: Array = np.arange(math.prod(steps), dtype=np.int64)
    steps_name = constant("steps", numbers.reshape(steps))
    is_circular = node.get("mode", "linear") == "circular"
    return [
        Node("Reshape", [start, one_each], [starts]),
        Node("Add", [starts, steps_name], [positions]),
        Node("Mod", [positions, constant("length", length[axis])], [wrapped]),
        Node(
            "Expand",
            [wrapped if is_circular else positions, constant("shape", shape)],
            [everywhere],
        ),
        Node("ScatterElements", [cache, everywhere, update], [node.output], {"axis": axis}),
    ]


def _binarizer(graph: Graph, node: Node) -> list[Node]:
    (x,) = node.inputs
    dtype = graph.value(x).dtype
    if dtype is None:
        return [node]
    number = np.array(node.get("threshold", 0.0), dtype)
    threshold = graph.constant(f"{node.output}/threshold", number)
    above = graph.fresh(f"{node.output}/above")
    return [
        Node("Greater", [x, threshold], [above]),
        Node("Cast", [above], [node.output], {"to": helper.np_dtype_to_tensor_dtype(dtype)}),
    ]


def _array_feature_extractor(graph: Graph, node: Node) -> list[Node]:
    """Return nodes that choose elements along the last axis of the input.

    If the input has only one axis, the output has the shape (1, number of chosen elements).
    """
    x, positions = node.inputs
    flat, chosen = (graph.fresh(f"{node.output}/{name}") for name in ("flat", "chosen"))
    everything = graph.constant(f"{node.output}/everything", np.array([-1], np.int64))
    rank = graph.shape(x)
    if rank is None:
        return [node]
    if len(rank) > 1:
        chosen = node.output
    nodes = [
        Node("Reshape", [positions, everything], [flat]),
        Node("Gather", [x, flat], [chosen], {"axis": -1}),
    ]
    if len(rank) == 1:
        row = graph.constant(f"{node.output}/row", np.array([1, -1], np.int64))
        nodes.append(Node("Reshape", [chosen, row], [node.output]))
    return nodes


ML = "ai.onnx.ml"
REPLACEMENTS: Mapping[tuple[str, str], Callable[[Graph, Node], list[Node]]] = {
    ("", "TensorScatter"): _tensor_scatter,
    (ML, "ArrayFeatureExtractor"): _array_feature_extractor,
    (ML, "Binarizer"): _binarizer,
}
