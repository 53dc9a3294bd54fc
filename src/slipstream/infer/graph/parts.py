"""Parts of graphs: some nodes of one as a graph of their own, and where a graph can be cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from slipstream.infer.graph.analysis import analyse
from slipstream.infer.graph.graph import Graph, Node


def part_of(graph: Graph, nodes: Sequence[Node]) -> Graph:
    """The graph of some nodes: takes what they read of others, gives what others read of them."""
    inside = {id(node) for node in nodes}
    given = {output for node in nodes for output in node.outputs}
    read = {name for node in nodes for name in node.reads()}
    elsewhere = {
        name for node in graph.nodes if id(node) not in inside for name in node.reads()
    } | set(graph.outputs)
    part = replace(graph.copy(), nodes=list(nodes))
    taken = {name for name in read - given if name not in graph.constants}
    order = [*graph.inputs, *(output for node in graph.nodes for output in node.outputs)]
    part.inputs = {name: graph.value(name) for name in order if name in taken}
    part.outputs = [name for name in order if name in given and name in elsewhere]
    part.constants = {name: graph.constants[name] for name in read if name in graph.constants}
    return part


def cuts(graph: Graph) -> list[str]:
    """Values through which all goes: what comes after one needs nothing else from before it.

    float32 of known shape, in their order; the graph's inputs and outputs are none.
    """
    last = {name: at for at, node in enumerate(graph.nodes) for name in node.reads()}
    for name in graph.outputs:
        last[name] = len(graph.nodes)
    live = {name for name in graph.inputs if name in last}
    found: list[str] = []
    for at, node in enumerate(graph.nodes):
        live.update(output for output in node.outputs if output in last)
        live = {name for name in live if last[name] > at}
        if len(live) != 1:
            continue
        (name,) = live
        value = graph.value(name)
        if name in node.outputs and name not in graph.outputs and value.fixed:
            found += [name] if value.dtype == np.float32 else []
    return found


def even_cuts(graph: Graph, most: int) -> list[str]:
    """Up to `most` of the cuts, with about as many operations between any two that follow."""
    flops = {node.output: node.flops for node in analyse(graph).nodes}
    done, total = 0, sum(flops.values())
    ends: dict[str, float] = {}
    for node in graph.nodes:
        done += flops.get(node.output, 0)
        ends[node.output] = done / max(total, 1)
    wanted = [(number + 1) / (most + 1) for number in range(most)]
    able = [name for name in cuts(graph) if name in ends]
    chosen = (
        {min(able, key=lambda name: abs(ends[name] - share)) for share in wanted} if able else ()
    )
    return [name for name in able if name in chosen]


def pieces(graph: Graph, ends: Sequence[str]) -> list[Graph]:
    """The graph cut at these values, in their order: one more than there are values."""
    at = {output: index + 1 for index, node in enumerate(graph.nodes) for output in node.outputs}
    bounds = [0, *(at[name] for name in ends), len(graph.nodes)]
    return [part_of(graph, graph.nodes[begin:end]) for begin, end in pairwise(bounds)]
