"""Reduce a detector's boxes by non-maximum suppression.

Boxes that overlap a box with a higher score are removed. Standard ONNX nodes, which are added at
the end of the graph, do this, so every engine can run the graph. All outputs have fixed shapes, and
are padded if an image has too few boxes. The module `box_layouts` converts the model's own outputs
to corners and scores.
"""

# NumPy's stubs do not state element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Graph, Node
from slipstream.infer.outputs.box_layouts import AUTO, Shapes, layout_named, layouts_for
from slipstream.infer.outputs.outputs import (
    BOXES,
    COUNTS,
    LABELS,
    SCORES,
    Ending,
    describe_outputs,
    shape_of,
)

INT64 = 7  # ONNX's number of the type int64
MOST_BOXES = 100_000  # per image; a limit against typing errors. Chosen by hand, not measured.


@dataclass(frozen=True, kw_only=True, slots=True)
class BoxOptions:
    """Rules that select boxes.

    Args:
        iou: Largest overlap of two boxes of the same class, as intersection over union, 0 to 1
            (default 0.45, as in YOLOv5). If two boxes of a class overlap more than that, the
            box with the lower score is removed.
        score: Score that a box must exceed, 0 to 1 (default 0.25, as in YOLOv5).
        most: Largest number of boxes to select per image, 1 to 100,000 (default 100).
        layout: Layout of the model's outputs: a name in `box_layouts.LAYOUTS`, or "auto" to
            recognise it by the shapes and numbers of the outputs (default "auto").
    """

    iou: float = 0.45
    score: float = 0.25
    most: int = 100
    layout: str = AUTO


def with_boxes(graph: Graph, options: BoxOptions) -> Graph:
    """Return a graph that outputs the selected boxes in place of the model's own outputs.

    Args:
        graph: Graph whose outputs have one of the `LAYOUTS`; it is not changed.
        options: Rules that select boxes.

    Returns:
        A graph with four outputs. `boxes`, float32 (n, most, 4), has the left, top, right and
        bottom of each box, in the model's own units (such as pixels). `scores`, float32 (n, most),
        are sorted, the highest first.
        `labels`, int64 (n, most), are the classes. `counts`, int64 (n,), is the number of selected
        boxes of each image. The rows after the selected boxes are padding: their coordinates and
        scores are 0, and their labels are -1. A box that is selected for several classes is
        repeated, once with each label.

    Raises:
        UsageError: the graph's outputs have none of the `LAYOUTS`, or an option is out of range.
    """
    are_shares = 0 <= options.iou <= 1 and 0 <= options.score <= 1
    if not (are_shares and 1 <= options.most <= MOST_BOXES):
        raise UsageError(
            f"boxes have iou={options.iou}, score={options.score}, most={options.most}; allowed:"
            f" iou and score 0 to 1, most 1 to {MOST_BOXES}"
        )
    shapes = shapes_of(graph)
    if options.layout == AUTO:
        layout = layouts_for(shapes, describe_outputs(graph))[0]
    else:
        layout = layout_named(options.layout, shapes, describe_outputs(graph))
    write = Ending(graph)
    detections = layout.read(write, write.sources, shapes)
    batch = shapes[0][0]
    images = [
        _of_image(
            write,
            _image(write, detections.boxes, at),
            _image(write, detections.scores, at),
            detections.number,
            options,
        )
        for at in range(batch)
    ]
    names = (BOXES, SCORES, LABELS, COUNTS)
    for name, parts in zip(names, zip(*images, strict=True), strict=True):
        write("Concat", *parts, gives=name, axis=0)
    rows = (batch, options.most)
    return write.done(
        {
            BOXES: (np.float32, (*rows, 4)),
            SCORES: (np.float32, rows),
            LABELS: (np.int64, rows),
            COUNTS: (np.int64, (batch,)),
        }
    )


def shapes_of(graph: Graph) -> Shapes:
    """Return the shapes of a graph's outputs; return () if any output is not float32."""
    kinds = {graph.value(name).dtype for name in graph.outputs}
    if kinds != {np.dtype(np.float32)}:
        return ()
    return tuple(shape_of(graph, name) for name in graph.outputs)


def _image(write: Ending, name: str, at: int) -> str:
    """Select one image of a batch; the result keeps the batch dimension, with length 1."""
    return write("Slice", name, write.numbers(at), write.numbers(at + 1), write.numbers(0))


def _of_image(
    write: Ending, boxes: str, scores: str, number: int, options: BoxOptions
) -> tuple[str, str, str, str]:
    """Return the names of one image's boxes, scores, labels and count.

    The four values have the shapes (1, most, 4), (1, most), (1, most) and (1,).
    """
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
    # Padding follows the selected boxes: the label -1 and the index of a box of zeros, which is
    # appended to all boxes.
    padding = write.constant("nothing", np.tile(np.array([-1, number], np.int64), (most, 1)))
    sorted_ = write("Gather", write("Concat", where, padding, axis=0), order, axis=0)
    label, index = (write("Gather", sorted_, write.numbers(at), axis=1) for at in (0, 1))
    zero = write.constant("zero", np.zeros((1, 4), np.float32))
    all_boxes = write("Concat", write("Squeeze", boxes, write.numbers(0)), zero, axis=0)
    best_boxes = write("Gather", all_boxes, write("Squeeze", index, write.numbers(1)), axis=0)
    is_one = write("Greater", best, write.constant("least", np.array(0, np.float32)))
    count = write("ReduceSum", write("Cast", is_one, to=INT64), keepdims=1)
    return (
        write("Unsqueeze", best_boxes, write.numbers(0)),
        write("Unsqueeze", best, write.numbers(0)),
        write("Transpose", label, perm=[1, 0]),
        count,
    )
