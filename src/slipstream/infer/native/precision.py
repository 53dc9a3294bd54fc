"""Which values our kernels may store as bytes.

A value is worth it where a product reads it. Values pass through operations that only move or
compare numbers in the format that they came in; some operations read or give float32 only.
"""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.infer.graph.graph import Graph, Node
from slipstream.infer.native.formats import SMALLEST_MATRIX
from slipstream.infer.native.stages import Stage, is_ours, stages_of

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Linear", "Gemm"})
FLOATS_IN = frozenset({"LayerNormalization", "Attention", "Softmax"})
FLOATS_OUT = frozenset({"Softmax"})


def storable(graph: Graph) -> list[str]:
    """Values that could be bytes: what stages give, and inputs, in order."""
    stages = stages_of(graph)
    wanted: set[str] = set()
    barred = set(graph.outputs)
    for stage in stages:
        if stage.node.op in FLOATS_IN:
            barred.update(stage.reads())
        if stage.node.op in FLOATS_OUT:
            barred.update(stage.node.outputs)
        if stage.tail.factor is not None:
            barred.add(stage.tail.factor)
        if stage.node.op == "Mul":
            barred.update(name for name in stage.node.inputs if _is_gate(graph, name))
    for stage in reversed(stages):
        passes = stage.node.op not in FLOATS_IN and not wanted.isdisjoint(_gives(stage))
        if stage.node.op in PRODUCTS or passes:
            wanted.update(name for name in stage.reads() if name not in graph.constants)
    order = [*graph.inputs, *(name for stage in stages for name in _gives(stage))]
    floats = {name for name in order if _kind(graph, name) == "f"}
    return [name for name in order if name in wanted and name in floats and name not in barred]


def is_large(graph: Graph, node: Node) -> bool:
    """True for a product with a large constant matrix."""
    if node.op not in ("Linear", "Gemm") or node.inputs[1] not in graph.constants:
        return False
    return graph.constants[node.inputs[1]].size >= SMALLEST_MATRIX


def attended(graph: Graph) -> list[str]:
    """Queries, keys and values of attention that could be bfloat16, and what they are split from:
    results of products that nothing else reads."""
    stages, uses = stages_of(graph), graph.uses()
    alone = {name for name, readers in uses.items() if len(readers) == 1}
    wanted = {
        name
        for stage in stages
        if is_ours(stage.node, "Attention")
        for name in stage.node.inputs[:3]
        if name in alone
    }
    products = {stage.output for stage in stages if stage.node.op in PRODUCTS}
    found = [name for name in wanted if name in products]
    for stage in stages:
        source = stage.node.inputs[0]
        if stage.node.op == "Split" and source in products & alone:
            found += [source, *stage.node.outputs] if wanted.issuperset(stage.node.outputs) else []
    return found


def joined(
    graph: Graph, ranges: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """Ranges with those of values that are joined, and of what they become, made one, so that
    joining moves nothing."""
    found = dict(ranges)
    for node in reversed(graph.nodes):
        names = [*node.inputs, node.output]
        if node.op == "Concat" and all(name in found for name in names):
            ends = [found[name] for name in names]
            one = min(low for low, _ in ends), max(high for _, high in ends)
            found.update(dict.fromkeys(names, one))
    return found


def _gives(stage: Stage) -> list[str]:
    return stage.node.outputs if len(stage.node.outputs) > 1 else [stage.output]


def _kind(graph: Graph, name: str) -> str:
    dtype = graph.value(name).dtype
    return "f" if dtype is None else dtype.kind


def _is_gate(graph: Graph, name: str) -> bool:
    shape = graph.shape(name)
    return shape is not None and (len(shape) == 2 or shape[2:] == (1, 1))
