"""The cost of a graph (operations, bytes and their ratio), computed without running the graph.

In a product (convolution, matrix product, attention), each multiplication counts as two operations
together with its addition. In any other node, each output element counts as one operation; nodes
that mostly move numbers (see `MOVES`) count as none. The bytes of a node are those of its inputs
and outputs: each input is read once, and each output is written once.
"""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from slipstream.infer.graph.graph import Array, Graph, Node

# Operators whose operations are not counted, because they mostly move numbers.
MOVES = frozenset(
    (
        *("Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Resize"),
        *("Shape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeCost:
    """The cost of one node.

    Args:
        op: Operator of the node.
        output: First output of the node.
        flops: Number of operations, as the module's docstring counts them.
        bytes_read: Bytes of the constants and values that the node reads.
        bytes_written: Bytes of the outputs of the node.
        is_product: True for a convolution, a matrix product or attention.
    """

    op: str
    output: str
    flops: int
    bytes_read: int
    bytes_written: int
    is_product: bool

    @property
    def intensity(self) -> float:
        """Operations per byte; the memory's speed limits a node with few operations per byte."""
        return self.flops / max(self.bytes_read + self.bytes_written, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Analysis:
    """The cost of a graph.

    Args:
        nodes: Costs of the nodes, in the graph's order; a value of unknown shape has 0 bytes.
        dead: Nodes that no output of the graph needs, each by the name of its first output.
        duplicates: Nodes that repeat the computation of an earlier node, each by the name of its
            first output.
    """

    nodes: tuple[NodeCost, ...]
    dead: tuple[str, ...]
    duplicates: tuple[str, ...]

    @property
    def flops(self) -> int:
        """Number of operations of all products together."""
        return sum(node.flops for node in self.nodes if node.is_product)

    @property
    def bytes_moved(self) -> int:
        """Bytes that all nodes read and write together, if each node runs by itself."""
        return sum(node.bytes_read + node.bytes_written for node in self.nodes)

    @property
    def intensity(self) -> float:
        """Operations of all products, divided by the bytes of all nodes."""
        return self.flops / max(self.bytes_moved, 1)


def analyse(graph: Graph) -> Analysis:
    """Return the cost of a graph, which is not run."""
    return Analysis(
        nodes=tuple(_cost(graph, node) for node in graph.nodes),
        dead=_dead(graph),
        duplicates=_duplicates(graph),
    )


def _cost(graph: Graph, node: Node) -> NodeCost:
    count = _PRODUCTS.get(node.op)
    written = [_elements(graph, name) for name in node.outputs if name]
    flops = 0 if node.op in MOVES else sum(written)
    if count is not None:
        flops = count(graph, node)
    return NodeCost(
        op=node.op,
        output=node.output,
        flops=flops,
        bytes_read=sum(_bytes(graph, name) for name in dict.fromkeys(node.reads())),
        bytes_written=sum(_bytes(graph, name) for name in node.outputs if name),
        is_product=count is not None,
    )


def _elements(graph: Graph, name: str) -> int:
    shape = graph.shape(name)
    return 0 if shape is None else math.prod(shape)


def _bytes(graph: Graph, name: str) -> int:
    dtype = graph.value(name).dtype
    return _elements(graph, name) * (4 if dtype is None else dtype.itemsize)


def _convolution(graph: Graph, node: Node) -> int:
    """Return the number of operations: an output element sums a window in its group's channels."""
    weights = graph.shape(node.inputs[1])
    return 0 if weights is None else 2 * _elements(graph, node.output) * math.prod(weights[1:])


def _transposed_convolution(graph: Graph, node: Node) -> int:
    """Return the number of operations: input elements add to windows in their group's channels."""
    weights = graph.shape(node.inputs[1])
    return 0 if weights is None else 2 * _elements(graph, node.inputs[0]) * math.prod(weights[1:])


def _matrix_product(graph: Graph, node: Node) -> int:
    shape = graph.shape(node.inputs[0])
    if not shape:
        return 0
    inner = shape[-2] if node.op == "Gemm" and node.get("transA", 0) else shape[-1]
    return 2 * _elements(graph, node.output) * inner


def _attention(graph: Graph, node: Node) -> int:
    """Return the number of operations of both matrix products of attention.

    The result does not depend on the number of heads.
    """
    queries, keys = graph.shape(node.inputs[0]), graph.shape(node.inputs[1])
    return 0 if queries is None or keys is None else 4 * math.prod(queries) * keys[-2]


_PRODUCTS: dict[str, Callable[[Graph, Node], int]] = {
    "Attention": _attention,
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Gemm": _matrix_product,
    "Linear": _matrix_product,
    "MatMul": _matrix_product,
}


def _dead(graph: Graph) -> tuple[str, ...]:
    needed = set(graph.outputs)
    dead: list[str] = []
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs):
            dead.append(node.output)
        else:
            needed.update(node.reads())
    return tuple(reversed(dead))


def _duplicates(graph: Graph) -> tuple[str, ...]:
    """Return the name of the first output of each node that is equal to an earlier node.

    Equal nodes have the same operator, attributes and inputs. Two inputs count as the same if equal
    nodes compute them.
    """
    same: dict[str, str] = {}
    first: dict[tuple[object, ...], Node] = {}
    duplicates: list[str] = []
    for node in graph.nodes:
        key = (
            node.domain,
            node.op,
            *(same.get(name, name) for name in node.inputs),
            *sorted((name, _key(value)) for name, value in node.attributes.items()),
        )
        earlier = first.setdefault(key, node)
        if earlier is not node and len(earlier.outputs) == len(node.outputs):
            duplicates.append(node.output)
            same.update(zip(node.outputs, earlier.outputs, strict=True))
    return tuple(duplicates)


def _key(value: object) -> str:
    if isinstance(value, np.ndarray):
        array = cast("Array", value)
        return f"{array.dtype} {array.shape} {array.tobytes().hex()}"
    return repr(value)
