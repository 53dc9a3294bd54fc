"""How detectors give boxes and scores: the layouts in use, and which one a model has.

A model does not say which it is. Shapes leave some, and the numbers that it gives for an input
leave fewer: scores are between 0 and 1.
"""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.outputs.outputs import Ending

Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"

AUTO = "auto"
ROUNDING = 1e-3  # by which a score may leave 0 to 1
LAST = np.iinfo(np.int64).max
CHOSEN_FIELDS = 6  # of boxes that a model has chosen: corners, score, class


@dataclass(frozen=True)
class Detections:
    """Values of a graph.

    Args:
        boxes: corners, (n, number, 4).
        scores: (n, classes, number).
        number: of boxes.
    """

    boxes: str
    scores: str
    number: int


@dataclass(frozen=True)
class Layout:
    """One way to give boxes.

    Args:
        name: for people and options.
        what: it, in words.
        fits: whether outputs have shapes for it.
        scores: those numbers of the outputs that are scores.
        read: adds the nodes that make corners and scores of the outputs.
        is_sure: whether outputs show that it is this one; those whose scores are made from other
            numbers need more than shapes.
    """

    name: str
    what: str
    fits: Callable[[Shapes], bool]
    scores: Callable[[Sequence[Array]], Array]
    read: Callable[[Ending, Sequence[str], Shapes], Detections]
    is_sure: Callable[[Sequence[Array]], bool] = lambda outputs: True

    def objection(self, outputs: Sequence[Array]) -> str:
        """Why outputs are not of this layout by their numbers; "" where they may be."""
        scores = self.scores(outputs)
        low, high = float(scores.min()), float(scores.max())
        if np.isfinite(scores).all() and low >= -ROUNDING and high <= 1 + ROUNDING:
            return ""
        return f"as {self.name} ({self.what}) its scores are {low:.4g} to {high:.4g}"


def layout_named(name: str, shapes: Shapes, described: str) -> Layout:
    """The layout of this name; UsageError where there is none, or the shapes are not its own."""
    if name not in LAYOUTS:
        raise UsageError(f"the layout of boxes is {name!r}; allowed: {AUTO}, {', '.join(LAYOUTS)}")
    layout = LAYOUTS[name]
    if not layout.fits(shapes):
        raise UsageError(f"the outputs are {described}; {name} is {layout.what}")
    return layout


def fitting(shapes: Shapes, described: str) -> list[Layout]:
    """Layouts for these shapes, the likeliest first; UsageError where there is none."""
    found = [layout for layout in LAYOUTS.values() if layout.fits(shapes)]
    if not found:
        known = "; ".join(f"{layout.name}: {layout.what}" for layout in LAYOUTS.values())
        raise UsageError(f"the outputs are {described}, and boxes are found of float32: {known}")
    if len(shapes) == 1 and shapes[0][1] < shapes[0][2]:
        found.sort(key=lambda layout: layout.name != "yolov8")
    return found


def layout_of(
    name: str, shapes: Shapes, described: str, examples: Sequence[Mapping[str, Array]]
) -> Layout:
    """The layout of a model's outputs.

    Args:
        name: of a layout, or AUTO.
        shapes: of the outputs.
        described: the outputs in words.
        examples: outputs for some inputs, by name, one or more.

    Raises UsageError where there is none whose scores are between 0 and 1, and where numbers do not
    tell which of several it is.
    """
    able = fitting(shapes, described) if name == AUTO else [layout_named(name, shapes, described)]
    outputs = [
        np.concatenate([each[output].astype(np.float64) for each in examples])
        for output in examples[0]
    ]
    objections = [layout.objection(outputs) for layout in able]
    right = [layout for layout, said in zip(able, objections, strict=True) if not said]
    sure = [layout for layout in right if name != AUTO or layout.is_sure(outputs)]
    if sure:
        return sure[0]
    if right:
        names = " or ".join(f"layout={layout.name} ({layout.what})" for layout in right)
        raise UsageError(f"the outputs {described} do not tell how boxes are read: say {names}")
    raise UsageError(
        f"the outputs {described} are no boxes and scores between 0 and 1: {'; '.join(objections)}"
        + _hint(shapes)
    )


def _hint(shapes: Shapes) -> str:
    if len(shapes) == 1 and shapes[0][-1] == CHOSEN_FIELDS:
        return "; rows of 6 that end in a class are chosen already: compile it without boxes"
    return "; perhaps they lack a sigmoid or softmax"


# ---- one output: rows of box and classes ---------------------------------------------------------


def _has_rows(least: int) -> Callable[[Shapes], bool]:
    """One output with so many fields, or more, along the shorter of its last two axes."""
    return lambda shapes: len(shapes) == 1 and len(shapes[0]) == 3 and min(shapes[0][1:]) >= least


def _rows(array: Array) -> Array:
    return array if array.shape[2] <= array.shape[1] else array.transpose(0, 2, 1)


def _read_rows(first: int) -> Callable[[Ending, Sequence[str], Shapes], Detections]:
    """Centre, size, and from field `first` on the classes; what is before is the objectness."""

    def read(write: Ending, outputs: Sequence[str], shapes: Shapes) -> Detections:
        (rows,), ((_, height, width),) = outputs, shapes
        if width > height:
            rows = write("Transpose", rows, perm=[0, 2, 1])
        scores = _fields(write, rows, first, LAST)
        if first > 4:
            scores = write("Mul", scores, _fields(write, rows, 4, first))
        boxes = _corners(write, _fields(write, rows, 0, 2), _fields(write, rows, 2, 4))
        return Detections(boxes, write("Transpose", scores, perm=[0, 2, 1]), max(height, width))

    return read


# ---- two outputs: boxes, and scores or what they are made of -------------------------------------


def _has_two(shapes: Shapes) -> bool:
    """Boxes and scores, in this order or the other one."""
    if len(shapes) != 2 or any(len(shape) != 3 for shape in shapes):
        return False
    boxes, scores = (shapes[at] for at in _order(shapes))
    return boxes[2] == 4 and boxes[0] == scores[0] and boxes[1] in scores[1:]


def _has_two_in_rows(shapes: Shapes) -> bool:
    return _has_two(shapes) and shapes[0][1] == shapes[1][1]


def _has_none(shapes: Shapes) -> bool:
    """One class of the scores, the last, is that of no object."""
    return _has_two_in_rows(shapes) and shapes[_order(shapes)[1]][2] > 1


def _order(shapes: Shapes) -> tuple[int, int]:
    """Which output is the boxes, and which one the scores."""
    return (0, 1) if shapes[0][2] == 4 else (1, 0)


def _pair(outputs: Sequence[Array]) -> tuple[Array, Array]:
    first, second = _order(tuple(each.shape for each in outputs))
    return outputs[first], outputs[second]


def _read_ssd(write: Ending, outputs: Sequence[str], shapes: Shapes) -> Detections:
    first, second = _order(shapes)
    scores, number = outputs[second], shapes[first][1]
    if shapes[second][1] == number:
        scores = write("Transpose", scores, perm=[0, 2, 1])
    return Detections(outputs[first], scores, number)


def _read_detr(op: str, last: int) -> Callable[[Ending, Sequence[str], Shapes], Detections]:
    """Scores are `op` of logits, but for the last classes; boxes are centres and sizes."""

    def read(write: Ending, outputs: Sequence[str], shapes: Shapes) -> Detections:
        first, second = _order(shapes)
        logits = outputs[second]
        likely = write(op, logits, axis=2) if op == "Softmax" else write(op, logits)
        scores = _fields(write, likely, 0, last)
        boxes = outputs[first]
        corners = _corners(write, _fields(write, boxes, 0, 2), _fields(write, boxes, 2, 4))
        transposed = write("Transpose", scores, perm=[0, 2, 1])
        return Detections(corners, transposed, shapes[first][1])

    return read


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _is_detr(outputs: Sequence[Array]) -> bool:
    """Most of its boxes are of no object, which is its last class; and they are logits."""
    boxes, logits = _pair(outputs)
    are_shares = boxes.min() >= -ROUNDING and boxes.max() <= 1 + ROUNDING
    is_none = logits.argmax(-1) == logits.shape[-1] - 1
    return bool(are_shares and logits.min() < -ROUNDING and is_none.mean() > 0.5)


# ---- nodes ---------------------------------------------------------------------------------------


def _corners(write: Ending, centre: str, size: str) -> str:
    half = write("Mul", size, write.constant("half", np.array(0.5, np.float32)))
    return write("Concat", write("Sub", centre, half), write("Add", centre, half), axis=2)


def _fields(write: Ending, rows: str, begin: int, end: int) -> str:
    return write("Slice", rows, write.numbers(begin), write.numbers(end), write.numbers(2))


LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(
            "yolov5",
            "(n, boxes, 5 + classes): centre, size, objectness, probabilities",
            _has_rows(6),
            lambda outputs: _rows(outputs[0])[..., 4:],
            _read_rows(5),
        ),
        Layout(
            "yolov8",
            "(n, 4 + classes, boxes) or its transpose: centre, size, probabilities",
            _has_rows(5),
            lambda outputs: _rows(outputs[0])[..., 4:],
            _read_rows(4),
        ),
        Layout(
            "ssd",
            "boxes (n, boxes, 4) of corners, and probabilities (n, boxes, classes) or transposed",
            _has_two,
            lambda outputs: _pair(outputs)[1],
            _read_ssd,
        ),
        Layout(
            "detr",
            "boxes (n, boxes, 4) of centre and size, and logits (n, boxes, classes + none)",
            _has_none,
            lambda outputs: _softmax(_pair(outputs)[1]),
            _read_detr("Softmax", -1),
            _is_detr,
        ),
        Layout(
            "rt-detr",
            "boxes (n, boxes, 4) of centre and size, and logits (n, boxes, classes) of sigmoids",
            _has_two_in_rows,
            lambda outputs: 1 / (1 + np.exp(-_pair(outputs)[1])),
            _read_detr("Sigmoid", LAST),
            lambda outputs: False,
        ),
    )
}
