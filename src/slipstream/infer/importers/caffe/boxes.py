"""SSD's prior boxes, which depend on shapes only and so are constants."""

# NumPy's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph import Array
from slipstream.infer.importers.builder import LARGEST_VALUE, Builder
from slipstream.infer.importers.caffe.network import Layer
from slipstream.infer.importers.caffe.products import pair
from slipstream.infer.importers.caffe.text import Message

SAME_RATIO = 1e-6
DEFAULT_VARIANCE = 0.1


def _prior_box(builder: Builder, layer: Layer, x: list[str]) -> str:
    """Boxes around every cell of the first blob, in parts of the picture that is the second.

    (1, 2, cells * boxes * 4): corners x, y, x, y; then the variance of each.
    """
    layer.only(x, 2)
    options = layer.message.message("prior_box_param")
    shape, picture = builder.shape(x[0]), builder.shape(x[1])
    if len(shape) != 4 or len(picture) != 4:
        raise UsageError(f"{layer.title}: blobs of the shapes {shape} and {picture}; allowed: 4-d")
    sizes = _sizes(layer, options)
    if shape[2] * shape[3] * len(sizes) * 8 > LARGEST_VALUE:
        raise UsageError(
            f"{layer.title}: {len(sizes)} boxes for every cell of {shape} are too many"
        )
    height, width = pair(options, ("img_size", "img_h", "img_w"), 0, 0)
    height, width = height or picture[2], width or picture[3]
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


def _sizes(layer: Layer, options: Message) -> list[tuple[float, float]]:
    """Widths and heights in pixels."""
    least, greatest = options.numbers("min_size"), options.numbers("max_size")
    if not least or (greatest and len(greatest) != len(least)):
        raise UsageError(f"{layer.title}: {len(least)} min_size and {len(greatest)} max_size")
    ratios: list[float] = [1.0]
    for ratio in options.numbers("aspect_ratio"):
        if not 0 < ratio < math.inf:
            raise UsageError(f"{layer.title}: aspect_ratio is {ratio}; allowed: above 0")
        if all(abs(ratio - other) >= SAME_RATIO for other in ratios):
            ratios += [ratio, 1 / ratio] if options.flag("flip", True) else [ratio]
    found: list[tuple[float, float]] = []
    for place, size in enumerate(least):
        found.append((size, size))
        if greatest:
            side = math.sqrt(abs(size * greatest[place]))
            found.append((side, side))
        found += [(size * math.sqrt(ratio), size / math.sqrt(ratio)) for ratio in ratios[1:]]
    return found


def _variances(layer: Layer, options: Message) -> list[float]:
    found = options.numbers("variance") or [DEFAULT_VARIANCE]
    if len(found) not in (1, 4):
        raise UsageError(f"{layer.title}: {len(found)} variances; allowed: 1 or 4")
    return found


LAYERS = {"PriorBox": _prior_box}
