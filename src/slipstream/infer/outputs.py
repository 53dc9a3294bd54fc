"""Outputs reduced to what is asked: the classes that score highest, boxes that do not overlap.

Both are nodes of ONNX at the end of a graph, so every engine has them, and all outputs have fixed
shapes: what there is less of than fits is filled up.
"""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph import Attribute, Graph, Node, Value

LABELS, SCORES, BOXES, COUNTS = "labels", "scores", "boxes", "counts"
BOX_FIELDS = 5  # of the one-output form, before the classes: centre, size, objectness
INT64 = 7  # ONNX's number of the type


@dataclass(frozen=True, kw_only=True, slots=True)
class BoxOptions:
    """Which boxes are kept.

    Args:
        iou: boxes of a class that overlap by more of their union than this, 0 to 1, are one: the
            one with the highest score stays.
        score: boxes with less, or as much, are left out, 0 to 1.
        most: of each picture, 1 or more.
    """

    iou: float = 0.45
    score: float = 0.25
    most: int = 100


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
    shape = _shape(graph, output)
    if len(graph.outputs) != 1 or len(shape) != 2 or graph.value(output).dtype != np.float32:
        raise UsageError(
            f"the outputs are {_described(graph)}; the highest scores are found of one output of"
            " float32 (n, classes)"
        )
    if not 1 <= count <= shape[1]:
        raise UsageError(f"top is {count}; allowed: 1 to {shape[1]}")
    write = _Ending(graph)
    (source,) = write.sources
    k = write.constant("k", np.array([count], np.int64))
    attributes: dict[str, Attribute] = {"axis": 1, "largest": 1, "sorted": 1}
    write.nodes.append(Node("TopK", [source, k], [SCORES, LABELS], attributes))
    each = (shape[0], count)
    return write.done({LABELS: (np.int64, each), SCORES: (np.float32, each)})


def with_boxes(graph: Graph, options: BoxOptions) -> Graph:
    """The graph with the best boxes that do not overlap in place of all boxes.

    Args:
        graph: one output, float32 (n, boxes, 5 + classes), of which a row is a box's centre and
            size, its objectness, and the probability of each class; or two, the boxes' corners
            float32 (n, boxes, 4) and their scores (n, boxes, classes) or (n, classes, boxes).
            Stays as it is.
        options: which are kept.

    Returns: a graph with the outputs `boxes`, float32 (n, most, 4), left, top, right, bottom where
    the graph has one output, else as the graph gives them; `scores`, float32 (n, most), highest
    first; `labels`, int64 (n, most); and `counts`, int64 (n,), how many of them there are: behind
    come boxes and scores of 0 with the label -1. A box may have several labels, once each.

    Raises UsageError for other outputs or options.
    """
    if not (0 <= options.iou <= 1 and 0 <= options.score <= 1 and options.most >= 1):
        raise UsageError(f"boxes have {options}; allowed: iou and score 0 to 1, most from 1 on")
    write = _Ending(graph)
    shapes = [_shape(graph, name) for name in graph.outputs]
    kinds = {graph.value(name).dtype for name in graph.outputs}
    if kinds != {np.dtype(np.float32)}:
        shapes = []
    if len(shapes) == 1 and len(shapes[0]) == 3 and shapes[0][2] > BOX_FIELDS:
        boxes, scores = _of_rows(write, write.sources[0])
    elif len(shapes) == 2 and len(shapes[0]) == len(shapes[1]) == 3 and shapes[0][2] == 4:
        boxes, scores = write.sources
        if shapes[1][1] == shapes[0][1]:
            scores = write("Transpose", scores, perm=[0, 2, 1])
    else:
        raise UsageError(
            f"the outputs are {_described(graph)}; boxes are found of one output of float32"
            " (n, boxes, 5 + classes), or of boxes (n, boxes, 4) and their scores"
        )
    batch, number = shapes[0][:2]
    found = [
        _of_picture(write, _picture(write, boxes, at), _picture(write, scores, at), number, options)
        for at in range(batch)
    ]
    for name, parts in zip((BOXES, SCORES, LABELS, COUNTS), zip(*found, strict=True), strict=True):
        write("Concat", *parts, gives=name, axis=0)
    each = (batch, options.most)
    return write.done(
        {
            BOXES: (np.float32, (*each, 4)),
            SCORES: (np.float32, each),
            LABELS: (np.int64, each),
            COUNTS: (np.int64, (batch,)),
        }
    )


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


class _Ending:
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


def _of_rows(write: _Ending, rows: str) -> tuple[str, str]:
    """Corners (n, boxes, 4) and scores (n, classes, boxes) of rows of centre, size, objectness and
    classes."""
    centre, size = _fields(write, rows, 0, 2), _fields(write, rows, 2, 4)
    half = write("Mul", size, write.constant("half", np.array(0.5, np.float32)))
    corners = (write("Sub", centre, half), write("Add", centre, half))
    boxes = write("Concat", *corners, axis=2)
    objectness = _fields(write, rows, 4, BOX_FIELDS)
    classes = _fields(write, rows, BOX_FIELDS, np.iinfo(np.int64).max)
    return boxes, write("Transpose", write("Mul", classes, objectness), perm=[0, 2, 1])


def _fields(write: _Ending, rows: str, begin: int, end: int) -> str:
    return write("Slice", rows, write.numbers(begin), write.numbers(end), write.numbers(2))


def _picture(write: _Ending, name: str, at: int) -> str:
    """One of a batch; the batch dimension stays."""
    return write("Slice", name, write.numbers(at), write.numbers(at + 1), write.numbers(0))


def _of_picture(
    write: _Ending, boxes: str, scores: str, number: int, options: BoxOptions
) -> tuple[str, str, str, str]:
    """Boxes (1, most, 4), scores (1, most), labels (1, most) and count (1,) of one picture."""
    most = options.most
    limits = (np.array(value, np.float32) for value in (options.iou, options.score))
    chosen = write(
        "NonMaxSuppression",
        boxes,
        scores,
        write.numbers(most),
        *(write.constant("limit", value) for value in limits),
    )
    where = write("Slice", chosen, write.numbers(1), write.numbers(3), write.numbers(1))
    values = write("GatherND", write("Squeeze", scores, write.numbers(0)), where)
    padded = write("Concat", values, write.constant("none", np.zeros(most, np.float32)), axis=0)
    order = write.graph.fresh("reduced/order")
    best = write.graph.fresh("reduced/best")
    write.nodes.append(Node("TopK", [padded, write.numbers(most)], [best, order], {"axis": 0}))
    # Behind the chosen ones: the label -1, and the box behind the last, which is 0.
    nothing = write.constant("nothing", np.tile(np.array([-1, number], np.int64), (most, 1)))
    sorted_ = write("Gather", write("Concat", where, nothing, axis=0), order, axis=0)
    label, index = (write("Gather", sorted_, write.numbers(at), axis=1) for at in (0, 1))
    zero = write.constant("zero", np.zeros((1, 4), np.float32))
    all_boxes = write("Concat", write("Squeeze", boxes, write.numbers(0)), zero, axis=0)
    kept = write("Gather", all_boxes, write("Squeeze", index, write.numbers(1)), axis=0)
    is_one = write("Greater", best, write.constant("least", np.array(0, np.float32)))
    count = write("ReduceSum", write("Cast", is_one, to=INT64), keepdims=1)
    return (
        write("Unsqueeze", kept, write.numbers(0)),
        write("Unsqueeze", best, write.numbers(0)),
        write("Transpose", label, perm=[1, 0]),
        count,
    )


def _shape(graph: Graph, name: str) -> tuple[int, ...]:
    return graph.shape(name) or ()


def _described(graph: Graph) -> str:
    values = ((name, graph.value(name)) for name in graph.outputs)
    return ", ".join(f"{name} {value.dtype} {value.shape}" for name, value in values)
