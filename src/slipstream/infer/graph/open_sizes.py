"""Sizes of outputs that follow from the numbers of an input, as how many boxes there are: they stay
open, and all others are those of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onnx import GraphProto

from slipstream.infer.graph.graph import Array, Graph, Node, Subgraph, Value

# Operators whose results are as large as the numbers that they read say (ONNX 1.23).
COUNTING = frozenset(("Compress", "NonMaxSuppression", "NonZero", "StringSplit", "Unique"))


def with_output_shapes(graph: Graph, runs: Sequence[Mapping[str, Array]]) -> Graph:
    """The graph with what is known of the shapes of its outputs.

    Args:
        graph: stays as it is. Shape inference does not see through every If and Loop.
        runs: the outputs of one run or more, by name.

    Returns: a copy in which the sizes of outputs that it did not know are those of the runs, but
    for those that follow from numbers or differ from run to run: these are None.
    """
    found: dict[str, Value] = {}
    for name in graph.outputs:
        known = graph.value(name)
        if known.fixed is None:
            arrays = [run[name] for run in runs]
            is_counted = _is_counted(graph, name)
            found[name] = Value(arrays[0].dtype, _shape(known, arrays, is_counted=is_counted))
    return replace(graph, values={**graph.values, **found})


def _shape(
    known: Value, arrays: Sequence[Array], *, is_counted: bool
) -> tuple[int | None, ...] | None:
    if len({array.ndim for array in arrays}) != 1:
        return None
    said = known.shape or (None,) * arrays[0].ndim
    columns = zip(*(array.shape for array in arrays), strict=True)
    return tuple(
        size if isinstance(size, int) else None if is_counted or len(set(seen)) > 1 else seen[0]
        for size, seen in zip(said, columns, strict=True)
    )


def _is_counted(graph: Graph, name: str) -> bool:
    """Whether an operator that counts is among those that an output follows from."""
    producers = graph.producers()
    left, seen = [name], {name}
    while left:
        node = producers.get(left.pop())
        if node is None:
            continue
        if _counts(node):
            return True
        left += [other for other in node.reads() if other not in seen]
        seen |= set(left)
    return False


def _counts(node: Node) -> bool:
    bodies = [item for item in node.attributes.values() if isinstance(item, Subgraph)]
    return node.op in COUNTING or any(_has_counting(GraphProto.FromString(b.data)) for b in bodies)


def _has_counting(graph: GraphProto) -> bool:
    return any(
        node.op_type in COUNTING
        or any(_has_counting(inner) for item in node.attribute for inner in (item.g, *item.graphs))
        for node in graph.node
    )
