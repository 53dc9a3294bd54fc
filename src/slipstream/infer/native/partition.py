"""Split a graph into its beginning (head), its middle (body), and its end (tail).

Our kernels compute the body, and ONNX Runtime computes the head and the tail. The head has, for
example, look-ups and masks before the first product (convolution, matrix product or attention). The
tail has, for example, the computation of a detector's boxes after the last product. The operators
in the head and in the tail work on few numbers, or on unusual shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.graph.graph import Graph, Node
from slipstream.infer.graph.parts import part_of
from slipstream.infer.native.formats import Format
from slipstream.infer.native.lower import NoKernelError, plan
from slipstream.infer.native.lowering import Lowering
from slipstream.infer.native.stages import Stage, is_ours

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Linear", "Gemm", "Attention"})


@dataclass(frozen=True)
class Parts:
    """Three consecutive graphs. ONNX Runtime computes `head` and `tail`; each of them can be None.

    Our kernels compute `body`.
    """

    head: Graph | None
    body: Graph
    tail: Graph | None


def partition(
    graph: Graph,
    operations: Mapping[str, Callable[[Lowering, Stage], None]],
    formats: Mapping[str, Format] | None = None,
) -> Parts:
    """Split a graph so that our kernels can compute the whole middle part.

    Args:
        graph: Graph that is split.
        operations: Function that plans an operator, by the operator's name.
        formats: Format of each value that is not stored as float32 (default: all are float32).

    Raises:
        UnsupportedError: no product would be left for our kernels; the error names an operator that
            our kernels do not support.
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
        except NoKernelError as error:
            _leave_to_onnx_runtime(links, error.node, before, after)
            if not any(n.op in PRODUCTS for n in body if id(n) not in before | after):
                raise UnsupportedError(
                    f"no product is left for the native engine: {error}"
                ) from error
            continue
        head = [node for node in graph.nodes if id(node) in before]
        tail = [node for node in graph.nodes if id(node) in after]
        return Parts(
            part_of(graph, head) if head else None, middle, part_of(graph, tail) if tail else None
        )


def _check(graph: Graph, links: _Links, inside: set[int], name: str) -> None:
    """Check that a value between two parts is float32 of one to four dimensions, or uint8 images.

    Raises:
        NoKernelError: the value has another dtype or shape.
    """
    value = graph.value(name)
    readers = [reader for reader in links.uses.get(name, []) if id(reader) in inside]
    if value.dtype == np.uint8 and readers and all(is_ours(reader, "Pixels") for reader in readers):
        return
    if (node := links.producers.get(name)) is None or id(node) not in inside:
        node = next((reader for reader in links.uses[name] if id(reader) in inside), None)
    if node is None or (
        value.fixed is not None and 1 <= len(value.fixed) <= 4 and value.dtype == np.float32
    ):
        return
    raise NoKernelError(
        node, f"the native engine passes on float32 of 1 to 4 fixed sizes, not {value}"
    )


class _Links:
    def __init__(self, graph: Graph) -> None:
        self.producers = graph.producers()
        self.uses = graph.uses()

    def before(self, node: Node) -> dict[int, Node]:
        """Return a node and all nodes on which it depends; the key of a node is its `id`."""
        return _closure(
            node, lambda n: [self.producers[i] for i in n.reads() if i in self.producers]
        )

    def after(self, node: Node) -> dict[int, Node]:
        """Return a node and all nodes that depend on it; the key of a node is its `id`."""
        return _closure(node, lambda n: [m for o in n.outputs for m in self.uses.get(o, [])])


def _closure(node: Node, step: Callable[[Node], list[Node]]) -> dict[int, Node]:
    reached: dict[int, Node] = {}
    unvisited = [node]
    while unvisited:
        here = unvisited.pop()
        if id(here) not in reached:
            reached[id(here)] = here
            unvisited.extend(step(here))
    return reached


def _leave_to_onnx_runtime(links: _Links, node: Node, before: set[int], after: set[int]) -> None:
    earlier = links.before(node)
    if any(other.op in PRODUCTS for other in earlier.values()):
        after.update(links.after(node))
        before.difference_update(after)
    else:
        before.update(earlier)
