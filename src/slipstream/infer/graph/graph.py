"""The graph that importers build and engines run: operators of ONNX on named values.

A value is a tensor with a name: an input of the graph, a constant, or an output of one node. A
graph is a few dictionaries, and a list of nodes in an order in which they can run. Operators and
attributes have the meaning of ONNX, so that a graph can be written to a file and passed to any
engine at any time. Operators that ONNX lacks are in the domain `slipstream`;
`infer.rewrites.expand` replaces them by operators of ONNX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from slipstream.errors import InternalError

Array: TypeAlias = npt.NDArray[Any]
Attribute: TypeAlias = "int | float | str | list[int] | list[float] | list[str] | Array | Subgraph"

SLIPSTREAM = "slipstream"  # domain of the operators that ONNX lacks


@dataclass(frozen=True)
class Value:
    """The dtype and shape of a value.

    Args:
        dtype: Type of the elements; None if it is unknown.
        shape: Sizes of the dimensions; an unknown size is a name or None. The shape is None if the
            number of dimensions is unknown.
    """

    dtype: np.dtype[Any] | None
    shape: tuple[int | str | None, ...] | None

    @property
    def fixed(self) -> tuple[int, ...] | None:
        """The shape if all sizes are known, else None."""
        if self.shape is None or not all(isinstance(size, int) for size in self.shape):
            return None
        return tuple(size for size in self.shape if isinstance(size, int))


@dataclass(frozen=True)
class Subgraph:
    """The body of If, Loop or Scan, which is never rewritten.

    Args:
        data: Body in the form that ONNX stores.
        reads: Values of the surrounding graph that the body uses.
    """

    data: bytes
    reads: frozenset[str]


@dataclass(eq=False)
class Node:
    """One operation.

    Args:
        op: Operator.
        inputs: Names of the values that the node reads; "" for an optional input that is absent.
        outputs: Names of the values that the node computes.
        attributes: Values of the operator's attributes, by the attribute's name.
        domain: Domain of the operator; "" for ONNX's own.
        name: Name of the node, which may be "".
    """

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Attribute] = field(default_factory=dict[str, Attribute])
    domain: str = ""
    name: str = ""

    @property
    def output(self) -> str:
        """Name of the first output."""
        return self.outputs[0]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or `default` if the node lacks it."""
        return self.attributes.get(name, default)

    def reads(self) -> Iterator[str]:
        """Yield the name of every value that the node or one of its subgraphs reads."""
        yield from (name for name in self.inputs if name)
        for attribute in self.attributes.values():
            if isinstance(attribute, Subgraph):
                yield from attribute.reads


@dataclass
class Graph:
    """A graph of operators.

    Args:
        inputs: Dtypes and shapes of the inputs, by name.
        outputs: Names of the outputs.
        nodes: Nodes in an order in which they can run.
        constants: Arrays of the constants, by the constant's name.
        values: Dtypes and shapes of the results of nodes, by name, as far as they are known.
        opsets: Versions of the operator sets, by domain.
        name: Name of the graph in ONNX files and in error messages (default "graph").
    """

    inputs: dict[str, Value]
    outputs: list[str]
    nodes: list[Node]
    constants: dict[str, Array]
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    opsets: dict[str, int] = field(default_factory=lambda: {"": 17})
    name: str = "graph"

    def copy(self) -> Graph:
        """Return a copy that shares the arrays of constants, which must not be changed."""
        nodes = [
            replace(
                node,
                inputs=list(node.inputs),
                outputs=list(node.outputs),
                attributes=dict(node.attributes),
            )
            for node in self.nodes
        ]
        return replace(
            self,
            inputs=dict(self.inputs),
            outputs=list(self.outputs),
            nodes=nodes,
            constants=dict(self.constants),
            values=dict(self.values),
            opsets=dict(self.opsets),
        )

    # ---- looking ---------------------------------------------------------------------------

    def uses(self) -> dict[str, list[Node]]:
        """Return the nodes that read each value, by the name of the value.

        A node that reads a value twice is listed twice. A value that no node reads is not in the
        result, even if it is an output of the graph.
        """
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.reads():
                readers.setdefault(name, []).append(node)
        return readers

    def read_constants(self) -> dict[str, Array]:
        """Return the constants that nodes read, or that are outputs of the graph."""
        read = {name for node in self.nodes for name in node.reads()} | set(self.outputs)
        return {name: array for name, array in self.constants.items() if name in read}

    def producers(self) -> dict[str, Node]:
        """Return the node that computes each value, by the value's name."""
        return {output: node for node in self.nodes for output in node.outputs if output}

    def value(self, name: str) -> Value:
        """Return the dtype and shape of a value; what is unknown is None."""
        constant = self.constants.get(name)
        if constant is not None:
            return Value(constant.dtype, constant.shape)
        return self.inputs.get(name) or self.values.get(name) or Value(None, None)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a value if all sizes are known, else None."""
        return self.value(name).fixed

    # ---- changing --------------------------------------------------------------------------

    def fresh(self, stem: str) -> str:
        """Return a name that no value has: the stem, followed by a number if the stem is in use."""
        used = {output for node in self.nodes for output in node.outputs}
        used |= self.inputs.keys() | self.constants.keys()
        name, number = stem, 0
        while name in used:
            number += 1
            name = f"{stem}_{number}"
        return name

    def constant(self, stem: str, array: Array) -> str:
        """Add a constant and return its name: the stem, or the stem and a number (see `fresh`)."""
        name = self.fresh(stem)
        self.constants[name] = array
        return name

    def put(self, nodes: Sequence[Node], *, before: Node) -> None:
        """Insert nodes directly before another node."""
        at = self._position(before)
        self.nodes[at:at] = nodes

    def rename(self, names: Mapping[str, str]) -> None:
        """Replace names in the inputs of all nodes.

        Outputs of nodes and outputs of the graph keep their names; callers rename them if needed.
        """
        for node in self.nodes:
            node.inputs = [names.get(name, name) for name in node.inputs]

    def _position(self, node: Node) -> int:
        for at, other in enumerate(self.nodes):
            if other is node:
                return at
        raise InternalError(f"the graph has no such node: {node.op} {node.name}")
