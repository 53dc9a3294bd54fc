"""Fill in the unknown sizes of a graph's outputs, as runs of the graph show them.

A size that depends on the elements of an input, such as the number of boxes, stays open (None).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onnx import GraphProto

from slipstream.infer.graph.graph import Array, Graph, Node, Subgraph, Value

# Operators whose outputs have sizes that depend on the elements of the inputs (ONNX 1.23).
COUNTING = frozenset(("Compress", "NonMaxSuppression", "NonZero", "StringSplit", "Unique"))


def with_output_shapes(graph: Graph, runs: Sequence[Mapping[str, Array]]) -> Graph:
    """Return a copy of a graph whose unknown output sizes are taken from outputs of runs.

    Args:
        graph: Graph, which is not changed. Sizes of its outputs may be unknown, because shape
            inference does not follow every If and Loop.
        runs: Output arrays of one or more runs of the graph, by the name of the output.

    Returns:
        The copy. An unknown output size becomes the size in the runs. It becomes None if it depends
        on the elements of an input, or if it differs between runs.
    """
    values: dict[str, Value] = {}
    for name in graph.outputs:
        value = graph.value(name)
        if value.fixed is None:
            arrays = [run[name] for run in runs]
            is_counted = _is_counted(graph, name)
            values[name] = Value(arrays[0].dtype, _shape(value, arrays, is_counted=is_counted))
    return replace(graph, values={**graph.values, **values})


def _shape(
    value: Value, arrays: Sequence[Array], *, is_counted: bool
) -> tuple[int | None, ...] | None:
    if len({array.ndim for array in arrays}) != 1:
        return None
    inferred = value.shape or (None,) * arrays[0].ndim
    columns = zip(*(array.shape for array in arrays), strict=True)
    return tuple(
        size if isinstance(size, int) else None if is_counted or len(set(sizes)) > 1 else sizes[0]
        for size, sizes in zip(inferred, columns, strict=True)
    )


def _is_counted(graph: Graph, name: str) -> bool:
    """Return whether an output depends on an operator of `COUNTING`, whose output sizes vary."""
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
