"""Rewrite the last layers of detectors (heads) so that they suit the channels-last order in memory.

A detector's head is a convolution, followed by a Reshape and a Transpose. The Reshape divides the
channel axis of the convolution's result into two axes, and the Transpose moves the second of these
two axes to the end. The rewrite makes the channel axis the last axis before the Reshape. The
Transpose then moves contiguous runs of numbers, not single numbers.
"""

from __future__ import annotations

import numpy as np

from slipstream.infer.graph.graph import Graph, Node

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
CUT = [0, 1, 3, 4, 2]  # order of a head's Transpose: (n, a, b, h, w) to (n, a, h, w, b)


def channels_last(graph: Graph) -> Graph:
    """Return a copy of a graph in which the heads of detectors are rewritten.

    The copy computes the same results as `graph`.
    """
    result = graph.copy()
    uses, producers = result.uses(), result.producers()
    for transpose in list(result.nodes):
        if transpose.op != "Transpose" or list(transpose.get("perm", [])) != CUT:
            continue
        reshape = producers.get(transpose.inputs[0])
        if reshape is None or reshape.op != "Reshape" or len(uses[reshape.output]) > 1:
            continue
        if reshape.output in result.outputs:
            continue
        before, cut = result.shape(reshape.inputs[0]), result.shape(reshape.output)
        if before is None or cut is None or len(before) != 4 or not _is_cut(before, cut):
            continue
        if _comes_from(producers, reshape.inputs[0]):
            _rewrite(result, reshape, transpose, cut)
    return result


def _is_cut(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    return len(after) == 5 and (after[0], after[3:]) == (before[0], before[2:])


def _comes_from(producers: dict[str, Node], name: str) -> bool:
    """Tell whether a value comes from a convolution, perhaps through operators with one input."""
    node = producers.get(name)
    while node is not None and node.op not in CONVOLUTIONS and len(node.inputs) == 1:
        node = producers.get(node.inputs[0])
    return node is not None and node.op in CONVOLUTIONS


def _rewrite(graph: Graph, reshape: Node, transpose: Node, cut: tuple[int, ...]) -> None:
    batch, first, second, rows, columns = cut
    last, parts = graph.fresh(f"{reshape.output}/last"), graph.fresh(f"{reshape.output}/parts")
    sizes = np.array([batch, rows, columns, first, second], np.int64)
    shape = graph.constant(f"{reshape.output}/shape", sizes)
    graph.put(
        [
            Node("Transpose", [reshape.inputs[0]], [last], {"perm": [0, 2, 3, 1]}),
            Node("Reshape", [last, shape], [parts]),
        ],
        before=transpose,
    )
    kind = graph.value(reshape.output)
    graph.values[last] = type(kind)(kind.dtype, (batch, rows, columns, first * second))
    graph.values[parts] = type(kind)(kind.dtype, tuple(int(size) for size in sizes))
    transpose.inputs = [parts]
    transpose.attributes["perm"] = [0, 3, 1, 2, 4]
    graph.nodes.remove(reshape)
    del graph.values[reshape.output]
