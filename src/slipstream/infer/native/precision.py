"""Choose the values that our kernels may store in fewer bits than float32.

A value is worth storing as uint8 if a product reads it. Operators that only move or compare numbers
keep the format of their input. Some operators read or write only float32.
"""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.infer.graph.graph import Graph, Node
from slipstream.infer.native.formats import SMALLEST_MATRIX
from slipstream.infer.native.stages import Stage, is_ours, stages_of

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Linear", "Gemm"})
READ_FLOAT32 = frozenset({"LayerNormalization", "Attention", "Softmax"})
GIVE_FLOAT32 = frozenset({"Softmax"})


def storable(graph: Graph) -> list[str]:
    """Return the names of the values that could be stored as uint8, in execution order.

    The values are inputs of the graph and results of stages.
    """
    stages = stages_of(graph)
    useful: set[str] = set()
    excluded = set(graph.outputs)
    for stage in stages:
        if stage.node.op in READ_FLOAT32:
            excluded.update(stage.reads())
        if stage.node.op in GIVE_FLOAT32:
            excluded.update(stage.node.outputs)
        if stage.tail.factor is not None:
            excluded.add(stage.tail.factor)
        if stage.node.op == "Mul":
            excluded.update(name for name in stage.node.inputs if _is_gate(graph, name))
    for stage in reversed(stages):
        passes = stage.node.op not in READ_FLOAT32 and not useful.isdisjoint(_gives(stage))
        if stage.node.op in PRODUCTS or passes:
            useful.update(name for name in stage.reads() if name not in graph.constants)
    order = [*graph.inputs, *(name for stage in stages for name in _gives(stage))]
    floats = {name for name in order if _kind(graph, name) == "f"}
    return [name for name in order if name in useful and name in floats and name not in excluded]


def is_large(graph: Graph, node: Node) -> bool:
    """Tell whether a node multiplies by a constant matrix of `SMALLEST_MATRIX` or more numbers."""
    if node.op not in ("Linear", "Gemm") or node.inputs[1] not in graph.constants:
        return False
    return graph.constants[node.inputs[1]].size >= SMALLEST_MATRIX


def attended(graph: Graph) -> list[str]:
    """Return the names of attention's queries, keys and values that could be stored as bfloat16.

    Such a query, key or value is the result of a product, or a part of a product's result, and only
    attention reads it. If a Split divides a result into parts, the list has the result, then the
    parts.
    """
    stages, uses = stages_of(graph), graph.uses()
    alone = {name for name, readers in uses.items() if len(readers) == 1}
    operands = {
        name
        for stage in stages
        if is_ours(stage.node, "Attention")
        for name in stage.node.inputs[:3]
        if name in alone
    }
    products = {stage.output for stage in stages if stage.node.op in PRODUCTS}
    result = [name for name in operands if name in products]
    for stage in stages:
        source = stage.node.inputs[0]
        if stage.node.op == "Split" and source in products & alone:
            result += (
                [source, *stage.node.outputs] if operands.issuperset(stage.node.outputs) else []
            )
    return result


def joined(
    graph: Graph, ranges: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """Return the ranges, changed so that the inputs and the output of each Concat have one range.

    Values with the same range have the same format, so Concat need not convert the inputs.
    """
    result = dict(ranges)
    for node in reversed(graph.nodes):
        names = [*node.inputs, node.output]
        if node.op == "Concat" and all(name in result for name in names):
            ends = [result[name] for name in names]
            common = min(low for low, _ in ends), max(high for _, high in ends)
            result.update(dict.fromkeys(names, common))
    return result


def _gives(stage: Stage) -> list[str]:
    return stage.node.outputs if len(stage.node.outputs) > 1 else [stage.output]


def _kind(graph: Graph, name: str) -> str:
    dtype = graph.value(name).dtype
    return "f" if dtype is None else dtype.kind


def _is_gate(graph: Graph, name: str) -> bool:
    shape = graph.shape(name)
    return shape is not None and (len(shape) == 2 or shape[2:] == (1, 1))
