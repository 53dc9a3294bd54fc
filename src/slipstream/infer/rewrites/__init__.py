"""Rewrites that make a graph cheaper to run and leave its outputs the same, up to rounding.

Each rewrite can be switched off by its name. A rewrite that merges several operators creates an
operator of ONNX if ONNX has a suitable one, and otherwise an operator of the domain `slipstream`.
The function `expand` replaces operators of the domain `slipstream` by operators of ONNX.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Graph
from slipstream.infer.graph.onnx_file import infer_shapes
from slipstream.infer.rewrites import (
    activations,
    affine,
    attention,
    branches,
    cleanup,
    constants,
    homogeneous,
    layout,
    modulation,
    norm,
    order,
    padding,
    spelled,
    squeeze_excite,
)
from slipstream.infer.rewrites.editor import Rewrite as Rewrite
from slipstream.infer.rewrites.expand import expand as expand

OLDEST_OPSET = 13  # in older operator sets, axes and similar inputs were attributes

EARLY_REWRITES = (
    *constants.REWRITES,
    *branches.REWRITES,
    *cleanup.REWRITES,
    *layout.REWRITES,
    *spelled.REWRITES,
    *padding.REWRITES,
    *affine.REWRITES,
    *activations.REWRITES,
    *norm.REWRITES,
    *squeeze_excite.REWRITES,
    *attention.REWRITES,
    *modulation.REWRITES,
)

REWRITES: tuple[Rewrite, ...] = (
    *EARLY_REWRITES,
    *affine.LATE_REWRITES,
    *homogeneous.LATE_REWRITES,
    *order.REWRITES,
)


@dataclass(frozen=True, slots=True)
class Applied:
    """The effect of one rewrite on a graph, summed over all times that it was applied.

    Args:
        name: Name of the rewrite.
        matches: Number of places in the graph that the rewrite changed.
        nodes_before: Number of nodes in the graph before the rewrite first ran.
        nodes_after: `nodes_before` minus the number of nodes that the rewrite saved.
    """

    name: str
    matches: int
    nodes_before: int
    nodes_after: int


def optimise(graph: Graph, *, without: Collection[str] = ()) -> tuple[Graph, tuple[Applied, ...]]:
    """Return a copy of the graph, to which rewrites are applied until no rewrite matches.

    Args:
        graph: Graph with ONNX operator set 13 or newer. The graph is not changed; the copy shares
            the graph's arrays.
        without: Names of rewrites to leave out (default none).

    Returns: the new graph, and the effect of each rewrite, in the order of `REWRITES`.

    Raises UsageError if a name in `without` is no rewrite's name, or if the operator set is older
    than 13.
    """
    chosen = _chosen(without)
    if graph.opsets.get("", OLDEST_OPSET) < OLDEST_OPSET:
        raise UsageError(
            f"the model uses version {graph.opsets['']} of ONNX's operators, rewrites need"
            f" {OLDEST_OPSET} or later; export it again, or use onnx.version_converter"
        )
    course = _Course(graph.copy())
    course.run([item for item in chosen if item in EARLY_REWRITES])
    course.run(chosen)
    return _tidied(course.graph), tuple(course.applied[item.name] for item in chosen)


class _Course:
    """A graph, and the effects of the rewrites that have been applied to the graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.applied: dict[str, Applied] = {}

    def run(self, rewrites: Sequence[Rewrite]) -> None:
        """Apply all rewrites one after another, and repeat this until no rewrite finds a match."""
        while sum(self._apply(item) for item in rewrites):
            self.graph = infer_shapes(self.graph)

    def _apply(self, item: Rewrite) -> int:
        before = len(self.graph.nodes)
        count = item.apply(self.graph)
        old = self.applied.get(item.name, Applied(item.name, 0, before, before))
        self.applied[item.name] = replace(
            old,
            matches=old.matches + count,
            nodes_after=old.nodes_after + len(self.graph.nodes) - before,
        )
        return count


def _chosen(without: Collection[str]) -> list[Rewrite]:
    names = [item.name for item in REWRITES]
    unknown = [name for name in without if name not in names]
    if unknown:
        raise UsageError(
            f"no rewrite is called {', '.join(map(repr, unknown))}; allowed: {', '.join(names)}"
        )
    return [item for item in REWRITES if item.name not in without]


def _tidied(graph: Graph) -> Graph:
    """Remove constants that no node reads any more, and types of values that no node computes."""
    read = {name for node in graph.nodes for name in node.reads()} | set(graph.outputs)
    computed = {output for node in graph.nodes for output in node.outputs}
    graph.constants = {name: array for name, array in graph.constants.items() if name in read}
    graph.values = {name: value for name, value in graph.values.items() if name in computed}
    return graph
