"""Boxes of SSD: detections, and prior boxes, which are constants."""

# NumPy's stubs do not state all types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.caffe.network import CaffeLayer
from slipstream.infer.importers.caffe.products import pair
from slipstream.infer.importers.caffe.text import Message
from slipstream.infer.importers.moves import reshape

SAME_RATIO = 1e-6  # Caffe's own threshold for equal aspect ratios
MOST_BOXES = 2**20  # SSD for images of 512 pixels has 24,564
DEFAULT_VARIANCE = 0.1  # SSD's default
CODES = {"1": "CORNER", "2": "CENTER_SIZE"}  # by their numbers in caffe.proto


def _prior_box(builder: Builder, layer: CaffeLayer, x: list[str]) -> str:
    """Compute prior boxes around every cell of the first blob, as fractions of the image.

    The second blob is the image. The result has the shape (1, 2, cells * boxes * 4). Along its
    second axis, the result has first the corners x, y, x, y of each box, then the variance of each
    coordinate.
    """
    layer.only(x, 2)
    options = layer.message.message("prior_box_param")
    shape, image = builder.shape(x[0]), builder.shape(x[1])
    if len(shape) != 4 or len(image) != 4:
        raise UsageError(f"{layer.title}: blobs of the shapes {shape} and {image}; allowed: 4-d")
    sizes = _sizes(layer, options)
    if shape[2] * shape[3] * len(sizes) > MOST_BOXES:
        raise UsageError(
            f"{layer.title}: {len(sizes)} boxes for every cell of {shape} are too many; allowed:"
            f" {MOST_BOXES} in all"
        )
    height, width = pair(options, ("img_size", "img_h", "img_w"), 0, 0)
    height, width = height or image[2], width or image[3]
    step = options.number("step", 0.0)
    down = options.number("step_h", step) or height / shape[2]
    right = options.number("step_w", step) or width / shape[3]
    offset = options.number("offset", 0.5)
    y, x_ = np.meshgrid(
        (np.arange(shape[2]) + offset) * down, (np.arange(shape[3]) + offset) * right, indexing="ij"
    )
    centres = np.stack([x_, y, x_, y], axis=-1)[:, :, None, :]
    halves = np.asarray([[-w, -h, w, h] for w, h in sizes]) / 2
    boxes: Array = (centres + halves) / [width, height, width, height]
    if options.flag("clip", False):
        boxes = np.clip(boxes, 0, 1)
    variances = _variances(layer, options)
    both = np.stack([boxes.reshape(-1), np.resize(variances, boxes.size)])[None]
    return builder.constant("boxes", both)


def _sizes(layer: CaffeLayer, options: Message) -> list[tuple[float, float]]:
    """Return the width and height, in pixels, of each prior box of a cell."""
    least, greatest = options.numbers("min_size"), options.numbers("max_size")
    if not least or (greatest and len(greatest) != len(least)):
        raise UsageError(
            f"{layer.title}: it has {len(least)} min_size and {len(greatest)} max_size; allowed: at"
            " least one min_size, and as many max_size or none"
        )
    ratios: list[float] = [1.0]
    for ratio in options.numbers("aspect_ratio"):
        if not 0 < ratio < math.inf:
            raise UsageError(f"{layer.title}: aspect_ratio is {ratio}; allowed: above 0")
        if all(abs(ratio - other) >= SAME_RATIO for other in ratios):
            ratios += [ratio, 1 / ratio] if options.flag("flip", True) else [ratio]
    sizes: list[tuple[float, float]] = []
    for place, size in enumerate(least):
        sizes.append((size, size))
        if greatest:
            side = math.sqrt(abs(size * greatest[place]))
            sizes.append((side, side))
        sizes += [(size * math.sqrt(ratio), size / math.sqrt(ratio)) for ratio in ratios[1:]]
    return sizes


def _variances(layer: CaffeLayer, options: Message) -> list[float]:
    variances = options.numbers("variance") or [DEFAULT_VARIANCE]
    if len(variances) not in (1, 4):
        raise UsageError(f"{layer.title}: it has {len(variances)} variances; allowed: 1 or 4")
    return variances


def detections(layer: CaffeLayer) -> tuple[CaffeLayer, str]:
    """Return a DetectionOutput layer that outputs all boxes and scores, and a note for the user."""
    options = layer.message.message("detection_output_param")
    top = layer.tops[0] if layer.tops else layer.name
    overlap = options.message("nms_param").number("nms_threshold", 0.3)
    score, most = options.number("confidence_threshold", 0.0), options.integer("keep_top_k", -1)
    options_text = f"iou={overlap:g},score={max(score, 0):g},most={most if most > 0 else 100}"
    note = (
        f"{layer.title}: the outputs {top}_boxes and {top}_scores are all boxes and scores; to"
        f" select boxes as this layer does, add --boxes {options_text}"
    )
    return replace(layer, tops=[f"{top}_boxes", f"{top}_scores"]), note


def _detection_output(builder: Builder, layer: CaffeLayer, x: list[str]) -> list[str]:
    """Return the corners of all boxes, (n, boxes, 4), and the boxes' scores, (n, classes, boxes).

    Coordinates are relative to the image's size. The scores of the background class are set to 0.
    """
    layer.only(x, 3)
    options = layer.message.message("detection_output_param")
    classes = options.integer("num_classes", 0)
    batch, numbers = builder.shape(x[0])[0], math.prod(builder.shape(x[0])[1:])
    count = numbers // 4
    is_plain = options.flag("share_location", True)
    is_plain = is_plain and not options.flag("variance_encoded_in_target", False)
    code = options.text("code_type", "CORNER")
    code = CODES.get(code, code)
    shapes = [builder.shape(name) for name in x]
    fits = [math.prod(shape) for shape in shapes] == [
        batch * numbers,
        batch * count * classes,
        2 * numbers,
    ]
    if not is_plain or code not in CODES.values() or not fits or numbers % 4 or classes < 2:
        raise UsageError(
            f"{layer.title}: it has {classes} classes, the code {code} and inputs of the shapes"
            f" {shapes}; allowed: CORNER and CENTER_SIZE, shared locations, variances in the"
            " priors, and the same number of boxes, scores and priors"
        )
    offsets = reshape(builder, x[0], (batch, count, 4))
    priors, variances = (
        reshape(builder, part, (1, count, 4))
        for part in _parts(builder, reshape(builder, x[2], (2, count, 4)), 2, 0)
    )
    scaled = builder.add("Mul", offsets, variances)
    boxes = builder.add("Add", scaled, priors)
    if code == "CENTER_SIZE":
        boxes = _around_centres(builder, scaled, priors)
    rows = reshape(builder, x[1], (batch, count, classes))
    scores = builder.add("Transpose", rows, perm=[0, 2, 1])
    background = options.integer("background_label_id", 0)
    if 0 <= background < classes:
        factors = (np.arange(classes) != background).astype(np.float32).reshape(1, -1, 1)
        scores = builder.add("Mul", scores, builder.constant("classes", factors))
    return [boxes, scores]


def _around_centres(builder: Builder, scaled: str, priors: str) -> str:
    """Decode boxes that are stored as shifts of the prior box's centre and logarithms of scales."""
    least, most = _parts(builder, priors, 2, 2)
    half = builder.constant("half", 0.5)
    size = builder.add("Sub", most, least)
    centre = builder.add("Mul", builder.add("Add", least, most), half)
    move, growth = _parts(builder, scaled, 2, 2)
    centre = builder.add("Add", builder.add("Mul", move, size), centre)
    reach = builder.add("Mul", builder.add("Mul", builder.add("Exp", growth), size), half)
    corners = builder.add("Sub", centre, reach), builder.add("Add", centre, reach)
    return builder.add("Concat", *corners, axis=2)


def _parts(builder: Builder, x: str, count: int, axis: int) -> list[str]:
    """Split an axis into equal parts."""
    sizes = builder.constant("split", np.full(count, builder.shape(x)[axis] // count, np.int64))
    return builder.add_several(count, "Split", x, sizes, axis=axis)


LAYERS = {"DetectionOutput": _detection_output, "PriorBox": _prior_box}
