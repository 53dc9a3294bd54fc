"""Outputs reduced to what is asked: the classes that score highest.

It is done by nodes of ONNX at the end of a graph, so every engine has them.
"""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Attribute, Graph, Node, Value

LABELS, SCORES, BOXES, COUNTS = "labels", "scores", "boxes", "counts"


def with_top(graph: Graph, count: int) -> Graph:
    """The graph with the classes that score highest in place of all scores.

    Args:
        graph: one output, float32 (n, classes); stays as it is.
        count: how many, 1 to the number of classes.

    Returns: a graph with the outputs `labels`, int64 (n, count), and `scores`, float32 (n, count),
    highest first. Scores are the numbers that the model gave.

    Raises UsageError for other outputs or counts.
    """
    output = graph.outputs[0]
    shape = shape_of(graph, output)
    if len(graph.outputs) != 1 or len(shape) != 2 or graph.value(output).dtype != np.float32:
        raise UsageError(
            f"the outputs are {described(graph)}; the highest scores are found of one output of"
            " float32 (n, classes)"
        )
    if not 1 <= count <= shape[1]:
        raise UsageError(f"top is {count}; allowed: 1 to {shape[1]}")
    write = Ending(graph)
    (source,) = write.sources
    k = write.constant("k", np.array([count], np.int64))
    attributes: dict[str, Attribute] = {"axis": 1, "largest": 1, "sorted": 1}
    write.nodes.append(Node("TopK", [source, k], [SCORES, LABELS], attributes))
    each = (shape[0], count)
    return write.done({LABELS: (np.int64, each), SCORES: (np.float32, each)})


def with_room(graph: Graph) -> Graph:
    """A copy whose own values leave the names of new outputs free.

    Raises UsageError where an input has one of these names.
    """
    result = graph.copy()
    names = [name for name in (BOXES, SCORES, LABELS, COUNTS) if _has(graph, name)]
    for name in names:
        if name in graph.inputs:
            raise UsageError(f"the input {name!r} has the name of a new output; rename it")
    renamed = {name: result.fresh(f"{name}:all") for name in names}
    result.rename(renamed)
    for node in result.nodes:
        node.outputs = [renamed.get(name, name) for name in node.outputs]
    result.constants = {renamed.get(name, name): it for name, it in result.constants.items()}
    result.values = {renamed.get(name, name): it for name, it in result.values.items()}
    result.outputs = [renamed.get(name, name) for name in graph.outputs]
    return result


class Ending:
    """Adds nodes behind a copy of a graph, whose own outputs make room for the new names."""

    def __init__(self, graph: Graph) -> None:
        self.graph = with_room(graph)
        self.nodes = self.graph.nodes
        self.sources = self.graph.outputs

    def __call__(self, op: str, *inputs: str, gives: str = "", **attributes: Attribute) -> str:
        """Add a node; its output's name."""
        output = gives or self.graph.fresh(f"reduced/{op}")
        self.nodes.append(Node(op, list(inputs), [output], dict(attributes)))
        return output

    def constant(self, stem: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
        """A constant's name."""
        return self.graph.constant(f"reduced/{stem}", array)

    def numbers(self, *values: int) -> str:
        """A constant int64 vector."""
        return self.constant("numbers", np.array(values, np.int64))

    def done(self, outputs: dict[str, tuple[type[np.generic], tuple[int, ...]]]) -> Graph:
        """The graph with these outputs."""
        self.graph.outputs = list(outputs)
        for name, (dtype, shape) in outputs.items():
            self.graph.values[name] = Value(np.dtype(dtype), shape)
        return self.graph


def _has(graph: Graph, name: str) -> bool:
    return name in graph.inputs or name in graph.constants or name in graph.producers()


def shape_of(graph: Graph, name: str) -> tuple[int, ...]:
    """The shape of a value; () where it is not known."""
    return graph.shape(name) or ()


def described(graph: Graph) -> str:
    """The outputs in words."""
    values = ((name, graph.value(name)) for name in graph.outputs)
    return ", ".join(f"{name} {value.dtype} {value.shape}" for name, value in values)
