"""Bytes of images as a model's input, normalised inside of it."""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import SLIPSTREAM, Graph, Node, Value
from slipstream.infer.images.reader import ImageOptions, per_channel

COLORS = (1, 3)


def image_input(graph: Graph) -> str:
    """The name of the only input that is an image: (n, 1 or 3, h, w), or (n, h, w, 1 or 3).

    Raises UsageError where there is none, or more than one.
    """
    found = [name for name in graph.inputs if _is_first(graph, name) or _is_last(graph, name)]
    if len(found) != 1:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in graph.inputs.items())
        raise UsageError(
            f"images are the inputs {', '.join(found) or 'none'} of {shapes}; pixels need one of"
            " shape (n, 1 or 3, height, width)"
        )
    return found[0]


def with_pixels(graph: Graph, options: ImageOptions) -> Graph:
    """The graph with bytes as its image: uint8 (n, h, w, c) in place of (n, c, h, w).

    What subtracts the mean and divides by the deviation is one node, Pixels, and zeros around a
    convolution's input come after it: results are what they were, up to rounding.

    Args:
        graph: float32 images with channels first, shapes fixed; stays as it is. One that takes
            bytes is returned as it is.
        options: `mean` and `std` for numbers from 0 to 1.

    Raises UsageError where it has no such input.
    """
    name = image_input(graph)
    value = graph.inputs[name]
    if value.dtype == np.uint8 and _is_last(graph, name):
        return graph
    if value.dtype != np.float32 or not _is_first(graph, name):
        raise UsageError(
            f"the input {name!r} is {value.dtype} {value.shape}; pixels take the place of float32"
            " (n, channels, height, width)"
        )
    shape = graph.shape(name)
    assert shape is not None
    batch, channels, height, width = shape
    mean, std = (per_channel(each, channels) for each in (options.mean, options.std))
    scale = np.broadcast_to(1 / (255 * std), channels)
    shift = np.broadcast_to(-mean / std, channels)
    result = graph.copy()
    output = result.fresh(f"{name}:numbers")
    result.rename({name: output})
    result.values[output] = value
    result.inputs[name] = Value(np.dtype(np.uint8), (batch, height, width, channels))
    attributes = {"scale": scale.tolist(), "shift": shift.tolist()}
    result.nodes.insert(0, Node("Pixels", [name], [output], {**attributes}, SLIPSTREAM))
    return result


def range_of(node: Node) -> tuple[float, float]:
    """The least and greatest number that a Pixels node can give."""
    pairs = list(zip(node.get("scale"), node.get("shift"), strict=True))
    return min(shift for _, shift in pairs), max(255 * scale + shift for scale, shift in pairs)


def _is_first(graph: Graph, name: str) -> bool:
    shape = graph.shape(name)
    return shape is not None and len(shape) == 4 and shape[1] in COLORS


def _is_last(graph: Graph, name: str) -> bool:
    shape = graph.shape(name)
    return shape is not None and len(shape) == 4 and shape[3] in COLORS
