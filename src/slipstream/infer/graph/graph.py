"""The graph that everything here reads and rewrites: ONNX's operators on named values.

A value is a name. It is an input of the graph, a constant, or what one node gives; so a graph is a
list of nodes in an order in which they can run, and a few dictionaries. Operators, attributes and
their meaning are those of ONNX, so that any graph can go back to a file and to any engine at any
time; operators that ONNX has not are of the domain `slipstream` and have an expansion into those it
has (`infer.rewrites.expand`).
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

SLIPSTREAM = "slipstream"  # the domain of operators that ONNX has not


@dataclass(frozen=True)
class Value:
    """What is known of a value. A dimension that is not known has a name, or is None."""

    dtype: np.dtype[Any] | None
    shape: tuple[int | str | None, ...] | None

    @property
    def fixed(self) -> tuple[int, ...] | None:
        """The shape, where every dimension is known."""
        if self.shape is None or not all(isinstance(size, int) for size in self.shape):
            return None
        return tuple(size for size in self.shape if isinstance(size, int))


@dataclass(frozen=True)
class Subgraph:
    """The body of If, Loop or Scan, as ONNX stores it: carried along, never rewritten."""

    data: bytes
    reads: frozenset[str]  # values of the graph around it that it uses


@dataclass(eq=False)
class Node:
    """One operation. Inputs that an operator allows to be absent are ""."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Attribute] = field(default_factory=dict[str, Attribute])
    domain: str = ""
    name: str = ""

    @property
    def output(self) -> str:
        """The only, or first, output."""
        return self.outputs[0]

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or `default` where the node has none."""
        return self.attributes.get(name, default)

    def reads(self) -> Iterator[str]:
        """Every value that it uses, those of subgraphs too."""
        yield from (name for name in self.inputs if name)
        for attribute in self.attributes.values():
            if isinstance(attribute, Subgraph):
                yield from attribute.reads


@dataclass
class Graph:
    """Nodes in an order in which they can run. Change `nodes` only through the methods."""

    inputs: dict[str, Value]
    outputs: list[str]
    nodes: list[Node]
    constants: dict[str, Array]
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    opsets: dict[str, int] = field(default_factory=lambda: {"": 17})
    name: str = "graph"

    def copy(self) -> Graph:
        """A graph of its own nodes and tables; the arrays are shared, as nobody writes to them."""
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
        """For every value the nodes that read it, one entry per reading. Outputs count as none."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.reads():
                found.setdefault(name, []).append(node)
        return found

    def read_constants(self) -> dict[str, Array]:
        """Constants that nodes read, or that are outputs."""
        read = {name for node in self.nodes for name in node.reads()} | set(self.outputs)
        return {name: array for name, array in self.constants.items() if name in read}

    def producers(self) -> dict[str, Node]:
        """For every value that a node gives, that node."""
        return {output: node for node in self.nodes for output in node.outputs if output}

    def value(self, name: str) -> Value:
        """What is known of `name`."""
        constant = self.constants.get(name)
        if constant is not None:
            return Value(constant.dtype, constant.shape)
        return self.inputs.get(name) or self.values.get(name) or Value(None, None)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of `name`, where every dimension is known."""
        return self.value(name).fixed

    # ---- changing --------------------------------------------------------------------------

    def fresh(self, stem: str) -> str:
        """A name that no value has, made from `stem`."""
        taken = {output for node in self.nodes for output in node.outputs}
        taken |= self.inputs.keys() | self.constants.keys()
        name, number = stem, 0
        while name in taken:
            number += 1
            name = f"{stem}_{number}"
        return name

    def constant(self, stem: str, array: Array) -> str:
        """Add a constant; its name is made from `stem`."""
        name = self.fresh(stem)
        self.constants[name] = array
        return name

    def put(self, nodes: Sequence[Node], *, before: Node) -> None:
        """Insert `nodes` where `before` is, ahead of it."""
        at = self._position(before)
        self.nodes[at:at] = nodes

    def rename(self, names: Mapping[str, str]) -> None:
        """Let everything that reads an old name read the new one instead.

        Graph outputs keep their names, so callers rename the node's output where they must.
        """
        for node in self.nodes:
            node.inputs = [names.get(name, name) for name in node.inputs]

    def _position(self, node: Node) -> int:
        for at, other in enumerate(self.nodes):
            if other is node:
                return at
        raise InternalError(f"the graph has no such node: {node.op} {node.name}")
