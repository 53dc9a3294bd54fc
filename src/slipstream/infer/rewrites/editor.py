"""The parts of a rewrite: rules, and an editor.

A rule looks at one node and returns the replacement of this node.

A rule reads the graph through an `Editor`, which knows which node computes a value (its producer)
and which nodes read it. The replacement must compute the outputs of the replaced node. Nodes whose
outputs no node reads after the replacement are removed, too. Outputs of the graph, and values that
another node reads, always stay.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from slipstream.infer.graph.graph import Array, Graph, Node, Subgraph, Value

Replacement: TypeAlias = Sequence[Node] | str | None
"""Nodes that replace a node; or the name of a value equal to its output; or None for no change."""

Rule: TypeAlias = "Callable[[Editor, Node], Replacement]"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A change of graphs that leaves their outputs the same, up to rounding.

    Args:
        name: Name of the rewrite in reports and in the option that switches it off.
        effect: Sentence that describes what the rewrite does.
        apply: Function that changes a graph in place and returns the number of rewritten matches.
    """

    name: str
    effect: str
    apply: Callable[[Graph], int]


def rewrite(name: str, effect: str, rule: Rule, *kinds: str) -> Rewrite:
    """Return a rewrite that tries a rule on each node of the given kinds (default: all nodes)."""

    def apply(graph: Graph) -> int:
        editor = Editor(graph)
        count = 0
        for node in list(graph.nodes):
            if (not kinds or kind(node) in kinds) and editor.has(node):
                count += editor.put(rule(editor, node), instead_of=node)
        editor.close()
        return count

    return Rewrite(name, effect, apply)


def kind(node: Node) -> str:
    """Return the node's operator with its domain, such as `Conv` or `slipstream.Linear`."""
    return f"{node.domain}.{node.op}" if node.domain else node.op


class Editor:
    """An editor for the changes of one rewrite; `close` writes the new list of nodes to the graph.

    Args:
        graph: Graph to change in place.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._producers = graph.producers()
        self._readers = graph.uses()
        self._outputs = frozenset(graph.outputs)
        self._fixed_names = self._outputs | frozenset(_subgraph_reads(graph.nodes))
        self._used_names = self._producers.keys() | graph.inputs.keys() | graph.constants.keys()
        self._placed: dict[int, Sequence[Node]] = {}
        self._gone: dict[int, Node] = {}

    # ---- looking ---------------------------------------------------------------------------

    def has(self, node: Node) -> bool:
        """Return whether the node is still in the graph."""
        return id(node) not in self._gone

    def producer(self, name: str, *kinds: str) -> Node | None:
        """Return the node that computes a value; None if the node's kind is not in `kinds`.

        Without `kinds`, any kind is accepted. The result is None if no node computes the value.
        """
        node = self._producers.get(name)
        return node if node is not None and (not kinds or kind(node) in kinds) else None

    def only(self, name: str, *kinds: str) -> Node | None:
        """Return the node that computes a value, like `producer`, if only one node reads the value.

        The result is None if several nodes read the value, or if it is an output of the graph.
        """
        return self.producer(name, *kinds) if self.is_private(name) else None

    def is_private(self, name: str) -> bool:
        """Return whether the value is read exactly once and is no output of the graph."""
        return len(self._readers.get(name, ())) == 1 and name not in self._outputs

    def is_output(self, name: str) -> bool:
        """Return whether the value is an output of the graph."""
        return name in self._outputs

    def is_read(self, name: str) -> bool:
        """Return whether a node reads the value, or whether it is an output of the graph."""
        return name in self._outputs or bool(self._readers.get(name))

    def constant(self, name: str) -> Array | None:
        """Return the elements of a constant, or None for any other value."""
        return self.graph.constants.get(name)

    def scalar(self, name: str) -> float | None:
        """Return the number in a one-element constant of rank 0 or 1, or None for other values."""
        array = self.graph.constants.get(name)
        if array is None or array.size != 1 or array.ndim > 1 or array.dtype.kind not in "fiu":
            return None
        return float(array.reshape(())[()])

    def value(self, name: str) -> Value:
        """Return the type and shape of a value, as far as they are known."""
        return self.graph.value(name)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a value, or None if a dimension is unknown."""
        return self.graph.shape(name)

    def rank(self, name: str) -> int | None:
        """Return the number of dimensions of a value, or None if the number is unknown."""
        shape = self.graph.value(name).shape
        return None if shape is None else len(shape)

    @property
    def opset(self) -> int:
        """The version of ONNX's operators that the graph uses."""
        return self.graph.opsets.get("", 17)

    # ---- changing --------------------------------------------------------------------------

    def name(self, stem: str) -> str:
        """Return an unused name for a new value."""
        name, number = stem, 0
        while name in self._used_names:
            number += 1
            name = f"{stem}_{number}"
        self._used_names.add(name)
        return name

    def add_constant(self, stem: str, array: Array) -> str:
        """Add a constant and return the name that it gets."""
        name = self.name(stem)
        self.graph.constants[name] = array
        return name

    def put(self, replacement: Replacement, *, instead_of: Node) -> bool:
        """Replace a node by the result of a rule; return whether the graph changed."""
        if replacement is None:
            return False
        if isinstance(replacement, str):
            return self._bypass(instead_of, replacement)
        self._enter(replacement)
        self._placed[id(instead_of)] = replacement
        self._remove(instead_of)
        return True

    def merge(self, node: Node, other: Node) -> bool:
        """Remove a node whose outputs equal those of an earlier node; return whether it is removed.

        The node stays if one of its outputs is an output of the graph or is read by a subgraph.
        """
        if any(output in self._fixed_names for output in node.outputs):
            return False
        for old, new in zip(node.outputs, other.outputs, strict=True):
            self._redirect(old, new)
        self._remove(node)
        return True

    def close(self) -> None:
        """Write the changed list of nodes to the graph."""
        self.graph.nodes = list(self._current(self.graph.nodes))

    def _current(self, nodes: Iterable[Node]) -> Iterable[Node]:
        for node in nodes:
            if id(node) not in self._gone:
                yield node
            yield from self._current(self._placed.get(id(node), ()))

    def _enter(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            for output in node.outputs:
                self._producers[output] = node
            for name in node.reads():
                self._readers.setdefault(name, []).append(node)

    def _remove(self, node: Node) -> None:
        waiting = [node]
        while waiting:
            node = waiting.pop()
            self._gone[id(node)] = node
            for output in node.outputs:
                if self._producers.get(output) is node:
                    del self._producers[output]
            for name in node.reads():
                _discard(self._readers[name], node)
                source = self._producers.get(name)
                if source is not None and not self._is_needed(source):
                    waiting.append(source)

    def _is_needed(self, node: Node) -> bool:
        return not self.has(node) or any(self.is_read(output) for output in node.outputs)

    def _bypass(self, node: Node, value: str) -> bool:
        if node.output not in self._fixed_names:
            self._redirect(node.output, value)
            self._remove(node)
            return True
        source = self._producers.get(value)
        if source is None or value in self._fixed_names:
            return False
        self._redirect(value, node.output)
        self._remove(node)
        source.outputs = [node.output if name == value else name for name in source.outputs]
        self._producers[node.output] = source
        self._producers.pop(value, None)
        return True

    def _redirect(self, old: str, new: str) -> None:
        readers = self._readers.pop(old, [])
        for node in readers:
            node.inputs = [new if name == old else name for name in node.inputs]
        self._readers.setdefault(new, []).extend(readers)


def _discard(nodes: list[Node], node: Node) -> None:
    at = next(at for at, other in enumerate(nodes) if other is node)
    del nodes[at]


def _subgraph_reads(nodes: Iterable[Node]) -> Iterable[str]:
    for node in nodes:
        for attribute in node.attributes.values():
            if isinstance(attribute, Subgraph):
                yield from attribute.reads
