"""Which part of a graph our kernels compute, and what ONNX Runtime does before and after it.

What comes before is look-ups and masks; what comes after, boxes and the like: operations on few or
oddly shaped numbers, of which no product follows or none came before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.graph.graph import Graph, Node
from slipstream.infer.graph.parts import part_of
from slipstream.infer.native.formats import Format
from slipstream.infer.native.lower import Lowering, NotOursError, plan
from slipstream.infer.native.stages import Stage, is_ours

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Linear", "Gemm", "Attention"})


@dataclass(frozen=True)
class Parts:
    """Three graphs that follow each other; those of ONNX Runtime may be missing."""

    head: Graph | None
    body: Graph
    tail: Graph | None


def partition(
    graph: Graph,
    operations: Mapping[str, Callable[[Lowering, Stage], None]],
    formats: Mapping[str, Format] | None = None,
) -> Parts:
    """Cut a graph so that our kernels have every product of the middle part, values in `formats`
    stored so.

    Raises UnsupportedError, with the operator in the way, where no product would be left.
    """
    before: set[int] = set()
    after: set[int] = set()
    links = _Links(graph)
    while True:
        body = [node for node in graph.nodes if id(node) not in before | after]
        middle = part_of(graph, body)
        try:
            for name in [*middle.inputs, *middle.outputs]:
                _check(graph, links, {id(node) for node in body}, name)
            plan(middle, formats or {}, operations)
        except NotOursError as error:
            _put_aside(links, error.node, before, after)
            if not any(n.op in PRODUCTS for n in body if id(n) not in before | after):
                raise UnsupportedError(f"nothing is left for our kernels: {error}") from error
            continue
        head = [node for node in graph.nodes if id(node) in before]
        tail = [node for node in graph.nodes if id(node) in after]
        return Parts(
            part_of(graph, head) if head else None, middle, part_of(graph, tail) if tail else None
        )


def _check(graph: Graph, links: _Links, inside: set[int], name: str) -> None:
    """What crosses between the parts is float32 of up to four dimensions, or bytes of pictures."""
    value = graph.value(name)
    readers = [reader for reader in links.uses.get(name, []) if id(reader) in inside]
    if value.dtype == np.uint8 and readers and all(is_ours(each, "Pixels") for each in readers):
        return
    if (node := links.producers.get(name)) is None or id(node) not in inside:
        node = next((reader for reader in links.uses[name] if id(reader) in inside), None)
    if node is None or (
        value.fixed is not None and 1 <= len(value.fixed) <= 4 and value.dtype == np.float32
    ):
        return
    raise NotOursError(node, f"our kernels cannot pass on {value}")


class _Links:
    def __init__(self, graph: Graph) -> None:
        self.producers = graph.producers()
        self.uses = graph.uses()

    def before(self, node: Node) -> dict[int, Node]:
        """The node and all that it depends on."""
        return _reach(node, lambda n: [self.producers[i] for i in n.reads() if i in self.producers])

    def after(self, node: Node) -> dict[int, Node]:
        """The node and all that depend on it."""
        return _reach(node, lambda n: [m for o in n.outputs for m in self.uses.get(o, [])])


def _reach(node: Node, step: Callable[[Node], list[Node]]) -> dict[int, Node]:
    found: dict[int, Node] = {}
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if id(here) not in found:
            found[id(here)] = here
            waiting.extend(step(here))
    return found


def _put_aside(links: _Links, node: Node, before: set[int], after: set[int]) -> None:
    earlier = links.before(node)
    if any(other.op in PRODUCTS for other in earlier.values()):
        after.update(links.after(node))
        before.difference_update(after)
    else:
        before.update(earlier)
