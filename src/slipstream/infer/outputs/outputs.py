"""Reduce the outputs of a classifier to the classes with the highest scores.

Standard ONNX nodes at the end of the graph select the classes, so every engine can run them.
"""

# NumPy's stubs do not state element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Attribute, Graph, Node, Value

LABELS, SCORES, BOXES, COUNTS = "labels", "scores", "boxes", "counts"


def with_top(graph: Graph, count: int) -> Graph:
    """Return a graph that outputs the classes with the highest scores instead of all scores.

    Args:
        graph: Graph with one output, float32 (n, classes); it is not changed.
        count: Number of classes that the new graph outputs, from 1 to all classes.

    Returns:
        A graph with the outputs `labels`, int64 (n, count), and `scores`, float32 (n, count).
        Classes are sorted by score, the highest first. The scores are the model's own numbers,
        unchanged.

    Raises:
        UsageError: the graph does not have one float32 output (n, classes), or the count is out of
            range.
    """
    output = graph.outputs[0]
    shape = shape_of(graph, output)
    if len(graph.outputs) != 1 or len(shape) != 2 or graph.value(output).dtype != np.float32:
        raise UsageError(
            f"the outputs are {describe_outputs(graph)}; the highest scores can be found in one"
            " output, float32 (n, classes)"
        )
    if not 1 <= count <= shape[1]:
        raise UsageError(f"top is {count}; allowed: 1 to {shape[1]}")
    write = Ending(graph)
    (source,) = write.sources
    k = write.constant("k", np.array([count], np.int64))
    attributes: dict[str, Attribute] = {"axis": 1, "largest": 1, "sorted": 1}
    write.nodes.append(Node("TopK", [source, k], [SCORES, LABELS], attributes))
    shape_of_result = (shape[0], count)
    return write.done({LABELS: (np.int64, shape_of_result), SCORES: (np.float32, shape_of_result)})


def with_room(graph: Graph) -> Graph:
    """Return a copy of the graph in which the names of new outputs are free.

    New outputs are called `boxes`, `scores`, `labels` and `counts`. Values that have one of these
    names are renamed.

    Raises:
        UsageError: an input of the graph has the name of a new output.
    """
    result = graph.copy()
    names = [name for name in (BOXES, SCORES, LABELS, COUNTS) if _has(graph, name)]
    for name in names:
        if name in graph.inputs:
            raise UsageError(f"the input {name!r} has the name of a new output; rename the input")
    renamed = {name: result.fresh(f"{name}:all") for name in names}
    result.rename(renamed)
    for node in result.nodes:
        node.outputs = [renamed.get(name, name) for name in node.outputs]
    result.constants = {renamed.get(name, name): array for name, array in result.constants.items()}
    result.values = {renamed.get(name, name): value for name, value in result.values.items()}
    result.outputs = [renamed.get(name, name) for name in graph.outputs]
    return result


class Ending:
    """Builder that appends nodes to a copy of a graph, in which names of new outputs are free."""

    def __init__(self, graph: Graph) -> None:
        self.graph = with_room(graph)
        self.nodes = self.graph.nodes
        self.sources = self.graph.outputs

    def __call__(self, op: str, *inputs: str, gives: str = "", **attributes: Attribute) -> str:
        """Add a node, and return the name of its output."""
        output = gives or self.graph.fresh(f"reduced/{op}")
        self.nodes.append(Node(op, list(inputs), [output], dict(attributes)))
        return output

    def constant(self, stem: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
        """Add a constant, and return its name."""
        return self.graph.constant(f"reduced/{stem}", array)

    def numbers(self, *values: int) -> str:
        """Add a constant int64 vector, and return its name."""
        return self.constant("numbers", np.array(values, np.int64))

    def done(self, outputs: dict[str, tuple[type[np.generic], tuple[int, ...]]]) -> Graph:
        """Set the graph's outputs, and return the graph.

        Args:
            outputs: Dtype and shape of each output, by the output's name.
        """
        self.graph.outputs = list(outputs)
        for name, (dtype, shape) in outputs.items():
            self.graph.values[name] = Value(np.dtype(dtype), shape)
        return self.graph


def _has(graph: Graph, name: str) -> bool:
    return name in graph.inputs or name in graph.constants or name in graph.producers()


def shape_of(graph: Graph, name: str) -> tuple[int, ...]:
    """Return the shape of a value; () if the shape is not known."""
    return graph.shape(name) or ()


def describe_outputs(graph: Graph) -> str:
    """Return the names, types and shapes of the outputs as text for messages."""
    values = ((name, graph.value(name)) for name in graph.outputs)
    return ", ".join(f"{name} {value.dtype} {value.shape}" for name, value in values)
