"""Layouts in which detectors return boxes and scores, and functions that recognise a layout.

A model does not state its layout. The shapes of a model's outputs exclude some layouts. The model's
results for a few inputs exclude more layouts, because scores are between 0 and 1.
"""

# NumPy's stubs do not state element types.
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
ROUNDING = 1e-3  # tolerance for scores below 0 or above 1. Chosen by hand, not measured.
LAST = np.iinfo(np.int64).max  # end of a slice up to the last field
CHOSEN_FIELDS = 6  # numbers per box if the model selects boxes itself: 4 corners, score, class


@dataclass(frozen=True)
class Detections:
    """Names of the graph's values that contain boxes and scores.

    Args:
        boxes: Name of the value with the corners of the boxes, of shape (n, number, 4).
        scores: Name of the value with the scores, of shape (n, classes, number).
        number: Number of boxes per image.
    """

    boxes: str
    scores: str
    number: int


@dataclass(frozen=True)
class BoxLayout:
    """A layout in which models return boxes and scores.

    Args:
        name: Name of the layout in options and messages.
        description: Shapes and contents of the outputs, as text for messages.
        fits: Function that takes the shapes of the outputs, and returns whether the outputs can
            have this layout.
        scores: Function that takes the arrays of the outputs, and returns the scores of all boxes.
        read: Function that adds nodes to the graph; the nodes compute corners and scores from the
            outputs.
        is_sure: Function that takes the arrays of the outputs, and returns whether the model surely
            has this layout (default: always True). A layout whose scores come from a sigmoid or
            softmax needs `is_sure`, because such scores are always between 0 and 1.
    """

    name: str
    description: str
    fits: Callable[[Shapes], bool]
    scores: Callable[[Sequence[Array]], Array]
    read: Callable[[Ending, Sequence[str], Shapes], Detections]
    is_sure: Callable[[Sequence[Array]], bool] = lambda outputs: True

    def objection(self, outputs: Sequence[Array]) -> str:
        """Return why the outputs cannot have this layout, or "" if they can."""
        scores = self.scores(outputs)
        low, high = float(scores.min()), float(scores.max())
        if np.isfinite(scores).all() and low >= -ROUNDING and high <= 1 + ROUNDING:
            return ""
        return f"as {self.name} ({self.description}) its scores are {low:.4g} to {high:.4g}"


def layout_named(name: str, shapes: Shapes, described: str) -> BoxLayout:
    """Return the layout with the given name.

    Raises:
        UsageError: no layout has this name, or the layout does not fit the shapes.
    """
    if name not in LAYOUTS:
        raise UsageError(f"the layout of boxes is {name!r}; allowed: {AUTO}, {', '.join(LAYOUTS)}")
    layout = LAYOUTS[name]
    if not layout.fits(shapes):
        raise UsageError(
            f"the outputs are {described}; the layout {name} needs {layout.description}"
        )
    return layout


def layouts_for(shapes: Shapes, described: str) -> list[BoxLayout]:
    """Return the layouts that fit the outputs' shapes, the likeliest layout first.

    Raises:
        UsageError: no layout fits the shapes.
    """
    layouts = [layout for layout in LAYOUTS.values() if layout.fits(shapes)]
    if not layouts:
        choices = "; ".join(f"{layout.name}: {layout.description}" for layout in LAYOUTS.values())
        raise UsageError(
            f"the outputs are {described}; boxes can be found in outputs of float32 in the layouts"
            f" {choices}"
        )
    if len(shapes) == 1 and shapes[0][1] < shapes[0][2]:
        layouts.sort(key=lambda layout: layout.name != "yolov8")
    return layouts


def detect_layout(
    name: str, shapes: Shapes, described: str, examples: Sequence[Mapping[str, Array]]
) -> BoxLayout:
    """Return the layout of a model's outputs.

    Args:
        name: Name of a layout, or "auto" to detect the layout.
        shapes: Shapes of the outputs.
        described: Description of the outputs, for error messages.
        examples: Arrays of the outputs by name, one mapping for each example input.

    Raises:
        UsageError: no layout has the name; no layout fits the shapes; in each layout that fits,
            some scores are not between 0 and 1; or `name` is "auto", and `BoxLayout.is_sure`
            returns False for each layout in which all scores are between 0 and 1.
    """
    if name == AUTO:
        layouts = layouts_for(shapes, described)
    else:
        layouts = [layout_named(name, shapes, described)]
    outputs = [
        np.concatenate([example[output].astype(np.float64) for example in examples])
        for output in examples[0]
    ]
    objections = [layout.objection(outputs) for layout in layouts]
    possible = [layout for layout, reason in zip(layouts, objections, strict=True) if not reason]
    sure = [layout for layout in possible if name != AUTO or layout.is_sure(outputs)]
    if sure:
        return sure[0]
    if possible:
        names = " or ".join(f"layout={layout.name} ({layout.description})" for layout in possible)
        raise UsageError(f"the outputs {described} do not tell which layout they have: say {names}")
    raise UsageError(
        f"the outputs {described} are no boxes and scores between 0 and 1: {'; '.join(objections)}"
        + _hint(shapes)
    )


def _hint(shapes: Shapes) -> str:
    if len(shapes) == 1 and shapes[0][-1] == CHOSEN_FIELDS:
        return "; rows of 6 that end in a class are selected already: compile it without boxes"
    return "; perhaps they lack a sigmoid or softmax"


# ---- one output: rows of box and classes ---------------------------------------------------------


def _has_rows(least: int) -> Callable[[Shapes], bool]:
    """Return a function that tells whether a model has one output with enough fields per box.

    There are enough fields if the shorter of the last two axes has the length `least` or more.
    """
    return lambda shapes: len(shapes) == 1 and len(shapes[0]) == 3 and min(shapes[0][1:]) >= least


def _rows(array: Array) -> Array:
    return array if array.shape[2] <= array.shape[1] else array.transpose(0, 2, 1)


def _read_rows(first: int) -> Callable[[Ending, Sequence[str], Shapes], Detections]:
    """Return a function for `BoxLayout.read`, which reads one row of fields per box.

    The fields are the centre, the size, and the class scores, which begin at the field `first`. If
    there is a field between the size and the class scores, it is the objectness. The class scores
    are then multiplied by the objectness.
    """

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


# ---- two outputs: boxes, and scores or logits ----------------------------------------------------


def _has_two(shapes: Shapes) -> bool:
    """Return whether the shapes are those of two outputs, boxes and scores, in either order."""
    if len(shapes) != 2 or any(len(shape) != 3 for shape in shapes):
        return False
    boxes, scores = (shapes[at] for at in _order(shapes))
    return boxes[2] == 4 and boxes[0] == scores[0] and boxes[1] in scores[1:]


def _has_two_in_rows(shapes: Shapes) -> bool:
    return _has_two(shapes) and shapes[0][1] == shapes[1][1]


def _has_none(shapes: Shapes) -> bool:
    """Return whether the shapes fit DETR.

    DETR has at least two classes; its last class means "no object".
    """
    return _has_two_in_rows(shapes) and shapes[_order(shapes)[1]][2] > 1


def _order(shapes: Shapes) -> tuple[int, int]:
    """Return the index of the output with boxes, and the index of the output with scores."""
    return (0, 1) if shapes[0][2] == 4 else (1, 0)


def _pair(outputs: Sequence[Array]) -> tuple[Array, Array]:
    first, second = _order(tuple(output.shape for output in outputs))
    return outputs[first], outputs[second]


def _read_ssd(write: Ending, outputs: Sequence[str], shapes: Shapes) -> Detections:
    first, second = _order(shapes)
    scores, number = outputs[second], shapes[first][1]
    if shapes[second][1] == number:
        scores = write("Transpose", scores, perm=[0, 2, 1])
    return Detections(outputs[first], scores, number)


def _read_detr(op: str, last: int) -> Callable[[Ending, Sequence[str], Shapes], Detections]:
    """Return a function for `BoxLayout.read`, which reads boxes (centre and size) and logits.

    The ONNX operator `op` turns the logits into scores. The classes from index `last` on are left
    out, because DETR's last class means "no object".
    """

    def read(write: Ending, outputs: Sequence[str], shapes: Shapes) -> Detections:
        first, second = _order(shapes)
        logits = outputs[second]
        probabilities = write(op, logits, axis=2) if op == "Softmax" else write(op, logits)
        scores = _fields(write, probabilities, 0, last)
        boxes = outputs[first]
        corners = _corners(write, _fields(write, boxes, 0, 2), _fields(write, boxes, 2, 4))
        transposed = write("Transpose", scores, perm=[0, 2, 1])
        return Detections(corners, transposed, shapes[first][1])

    return read


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _is_detr(outputs: Sequence[Array]) -> bool:
    """Return whether the outputs look like the outputs of DETR.

    In DETR's outputs, boxes are relative to the image, scores are logits, and most boxes have the
    last class, which means "no object".
    """
    boxes, logits = _pair(outputs)
    are_relative = boxes.min() >= -ROUNDING and boxes.max() <= 1 + ROUNDING
    is_none = logits.argmax(-1) == logits.shape[-1] - 1
    return bool(are_relative and logits.min() < -ROUNDING and is_none.mean() > 0.5)


# ---- nodes ---------------------------------------------------------------------------------------


def _corners(write: Ending, centre: str, size: str) -> str:
    half = write("Mul", size, write.constant("half", np.array(0.5, np.float32)))
    return write("Concat", write("Sub", centre, half), write("Add", centre, half), axis=2)


def _fields(write: Ending, rows: str, begin: int, end: int) -> str:
    return write("Slice", rows, write.numbers(begin), write.numbers(end), write.numbers(2))


LAYOUTS: Mapping[str, BoxLayout] = {
    layout.name: layout
    for layout in (
        BoxLayout(
            "yolov5",
            "(n, boxes, 5 + classes): centre, size, objectness, probabilities",
            _has_rows(6),
            lambda outputs: _rows(outputs[0])[..., 4:],
            _read_rows(5),
        ),
        BoxLayout(
            "yolov8",
            "(n, 4 + classes, boxes) or its transpose: centre, size, probabilities",
            _has_rows(5),
            lambda outputs: _rows(outputs[0])[..., 4:],
            _read_rows(4),
        ),
        BoxLayout(
            "ssd",
            "boxes (n, boxes, 4) of corners, and probabilities (n, boxes, classes) or transposed",
            _has_two,
            lambda outputs: _pair(outputs)[1],
            _read_ssd,
        ),
        BoxLayout(
            "detr",
            "boxes (n, boxes, 4) of centre and size, and logits (n, boxes, classes + none)",
            _has_none,
            lambda outputs: _softmax(_pair(outputs)[1]),
            _read_detr("Softmax", -1),
            _is_detr,
        ),
        BoxLayout(
            "rt-detr",
            "boxes (n, boxes, 4) of centre and size, and logits (n, boxes, classes) of sigmoids",
            _has_two_in_rows,
            lambda outputs: 1 / (1 + np.exp(-_pair(outputs)[1])),
            _read_detr("Sigmoid", LAST),
            lambda outputs: False,
        ),
    )
}
