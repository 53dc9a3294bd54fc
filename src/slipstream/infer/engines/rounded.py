"""Find the constants that an ONNX engine rounds, so that packages store rounded constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from slipstream.infer.engines.protocol import Recipe, Small
from slipstream.infer.engines.standard import compressed_axis
from slipstream.infer.graph.graph import Graph, Node
from slipstream.infer.native.formats import SMALLEST_MATRIX
from slipstream.infer.quantize import dynamic, qdq
from slipstream.infer.rewrites.expand import expand

HALVES: dict[str, Literal["bfloat16", "float16"]] = {"bf16": "bfloat16", "fp16": "float16"}


def rounded_constants(graph: Graph, recipe: Recipe) -> dict[str, Small]:
    """Return the rounded forms of constants that products read, by the name of the constant.

    `standard_graph` rounds constants to int8; the engine itself rounds them to 16 bits.
    """
    expanded = expand(graph)
    result: dict[str, Small] = {}
    for node in expanded.nodes:
        small = _rounded(expanded, node, recipe)
        if small is not None and node.inputs[1] in graph.constants:
            result[node.inputs[1]] = small
    return result


def _rounded(graph: Graph, node: Node, recipe: Recipe) -> Small | None:
    if recipe.precision == "int8" and not recipe.ranges.keys().isdisjoint(node.inputs):
        return _bytes(graph, node, qdq.weights_axis)
    if recipe.precision == "int8-dynamic":
        return _bytes(graph, node, dynamic.matrix_axis)
    if recipe.precision == "int8-weights":
        return _bytes(graph, node, compressed_axis, of_bytes=False)
    half = HALVES.get(recipe.rest if recipe.precision == "int8" else recipe.precision)
    if half is None or qdq.weights_axis(graph, node) is None:
        return None
    array = graph.constants[node.inputs[1]]
    is_matrix = array.dtype == np.float32 and array.size >= SMALLEST_MATRIX
    return Small(dtype=half) if is_matrix else None


def _bytes(
    graph: Graph, node: Node, axis_of: Callable[[Graph, Node], int | None], *, of_bytes: bool = True
) -> Small | None:
    axis = axis_of(graph, node)
    return None if axis is None else Small(dtype="int8", axis=axis, of_bytes=of_bytes)
