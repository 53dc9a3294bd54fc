"""A detector's boxes reduced to those that do not overlap.

It is done by nodes of ONNX at the end of a graph, so every engine has them, and all outputs have
fixed shapes: what there is less of than fits is filled up. How a model's outputs have to be read is
in `box_layouts`.
"""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Graph, Node
from slipstream.infer.outputs.box_layouts import AUTO, Shapes, fitting, layout_named
from slipstream.infer.outputs.outputs import (
    BOXES,
    COUNTS,
    LABELS,
    SCORES,
    Ending,
    described,
    shape_of,
)

INT64 = 7  # ONNX's number of the type
MOST_BOXES = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class BoxOptions:
    """Which boxes are kept.

    Args:
        iou: boxes of a class that overlap by more of their union than this, 0 to 1, are one: the
            one with the highest score stays.
        score: boxes with less, or as much, are left out, 0 to 1.
        most: the number of boxes that are kept of each image, 1 to 100,000.
        layout: how the outputs are read, a name of `LAYOUTS`; default as their shapes and numbers
            say.
    """

    iou: float = 0.45
    score: float = 0.25
    most: int = 100
    layout: str = AUTO


def with_boxes(graph: Graph, options: BoxOptions) -> Graph:
    """The graph with the best boxes that do not overlap in place of all boxes.

    Args:
        graph: its outputs are as one of `LAYOUTS` has them. Stays as it is.
        options: which are kept.

    Returns: a graph with the outputs `boxes`, float32 (n, most, 4), left, top, right, bottom in the
    units that the graph gives; `scores`, float32 (n, most), highest first; `labels`, int64 (n,
    most); and `counts`, int64 (n,), how many of them there are: behind come boxes and scores of 0
    with the label -1. A box may have several labels, once each.

    Raises UsageError for other outputs or options.
    """
    is_right = 0 <= options.iou <= 1 and 0 <= options.score <= 1
    if not (is_right and 1 <= options.most <= MOST_BOXES):
        raise UsageError(
            f"boxes have iou={options.iou}, score={options.score}, most={options.most}; allowed:"
            f" iou and score 0 to 1, most 1 to {MOST_BOXES}"
        )
    shapes = shapes_of(graph)
    if options.layout == AUTO:
        layout = fitting(shapes, described(graph))[0]
    else:
        layout = layout_named(options.layout, shapes, described(graph))
    write = Ending(graph)
    found = layout.read(write, write.sources, shapes)
    batch = shapes[0][0]
    images = [
        _of_image(
            write,
            _image(write, found.boxes, at),
            _image(write, found.scores, at),
            found.number,
            options,
        )
        for at in range(batch)
    ]
    names = (BOXES, SCORES, LABELS, COUNTS)
    for name, parts in zip(names, zip(*images, strict=True), strict=True):
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


def shapes_of(graph: Graph) -> Shapes:
    """The shapes of the outputs; none where one is no float32."""
    kinds = {graph.value(name).dtype for name in graph.outputs}
    if kinds != {np.dtype(np.float32)}:
        return ()
    return tuple(shape_of(graph, name) for name in graph.outputs)


def _image(write: Ending, name: str, at: int) -> str:
    """One of a batch; the batch dimension stays."""
    return write("Slice", name, write.numbers(at), write.numbers(at + 1), write.numbers(0))


def _of_image(
    write: Ending, boxes: str, scores: str, number: int, options: BoxOptions
) -> tuple[str, str, str, str]:
    """Boxes (1, most, 4), scores (1, most), labels (1, most) and count (1,) of one image."""
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
