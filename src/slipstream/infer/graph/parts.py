"""Divide a graph into parts that are graphs themselves, and find the values at which to cut it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from slipstream.infer.graph.analysis import analyse
from slipstream.infer.graph.graph import Graph, Node


def part_of(graph: Graph, nodes: Sequence[Node]) -> Graph:
    """Return some nodes of a graph as a graph of their own.

    The inputs of the part are the values that its nodes read but do not compute. The outputs of the
    part are the values that its nodes compute and that other nodes or the callers of the graph
    read.
    """
    inside = {id(node) for node in nodes}
    computed = {output for node in nodes for output in node.outputs}
    read = {name for node in nodes for name in node.reads()}
    read_outside = {
        name for node in graph.nodes if id(node) not in inside for name in node.reads()
    } | set(graph.outputs)
    part = replace(graph.copy(), nodes=list(nodes))
    inputs = {name for name in read - computed if name not in graph.constants}
    order = [*graph.inputs, *(output for node in graph.nodes for output in node.outputs)]
    part.inputs = {name: graph.value(name) for name in order if name in inputs}
    part.outputs = [name for name in order if name in computed and name in read_outside]
    part.constants = {name: graph.constants[name] for name in read if name in graph.constants}
    return part


def cuts(graph: Graph) -> list[str]:
    """Return the names of the values at which the graph can be cut in two, in execution order.

    The graph can be cut after a node if, of all values that exist by then (including the inputs of
    the graph), the later nodes and the outputs of the graph need only one. This value must be an
    output of the node, and float32 of a fixed shape. It must not be an output of the graph.
    """
    last = {name: at for at, node in enumerate(graph.nodes) for name in node.reads()}
    for name in graph.outputs:
        last[name] = len(graph.nodes)
    live = {name for name in graph.inputs if name in last}
    names: list[str] = []
    for at, node in enumerate(graph.nodes):
        live.update(output for output in node.outputs if output in last)
        live = {name for name in live if last[name] > at}
        if len(live) != 1:
            continue
        (name,) = live
        value = graph.value(name)
        if name in node.outputs and name not in graph.outputs and value.fixed:
            names += [name] if value.dtype == np.float32 else []
    return names


def even_cuts(graph: Graph, most: int) -> list[str]:
    """Return at most `most` cuts; the parts between them have similar numbers of operations."""
    flops = {node.output: node.flops for node in analyse(graph).nodes}
    done, total = 0, sum(flops.values())
    ends: dict[str, float] = {}
    for node in graph.nodes:
        done += flops.get(node.output, 0)
        ends[node.output] = done / max(total, 1)
    shares = [(number + 1) / (most + 1) for number in range(most)]
    names = [name for name in cuts(graph) if name in ends]
    if not names:
        return []
    chosen = {min(names, key=lambda name: abs(ends[name] - share)) for share in shares}
    return [name for name in names if name in chosen]


def pieces(graph: Graph, ends: Sequence[str]) -> list[Graph]:
    """Return the parts of a graph that is cut at the values `ends`, in execution order."""
    at = {output: index + 1 for index, node in enumerate(graph.nodes) for output in node.outputs}
    bounds = [0, *(at[name] for name in ends), len(graph.nodes)]
    return [part_of(graph, graph.nodes[begin:end]) for begin, end in pairwise(bounds)]
