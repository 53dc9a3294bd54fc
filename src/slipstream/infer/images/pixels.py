"""Models that take images as bytes; the first node of the graph normalises them."""

# NumPy's stubs do not state element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import SLIPSTREAM, Graph, Node, Value
from slipstream.infer.images.reader import ImageOptions, per_channel

COLORS = (1, 3)


def image_input(graph: Graph) -> str:
    """Return the name of the only image input: (n, 1 or 3, h, w) or (n, h, w, 1 or 3).

    Raises UsageError if the graph has no image input, or more than one.
    """
    names = [
        name
        for name in graph.inputs
        if _has_channels_first(graph, name) or _has_channels_last(graph, name)
    ]
    if len(names) != 1:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in graph.inputs.items())
        raise UsageError(
            f"{len(names)} of the inputs {shapes} are images; pixels need exactly one of shape"
            " (n, 1 or 3, height, width)"
        )
    return names[0]


def with_pixels(graph: Graph, options: ImageOptions) -> Graph:
    """Return a graph that takes bytes: uint8 (n, h, w, c) in place of float32 (n, c, h, w).

    The new first node, Pixels, subtracts the mean and divides by the standard deviation. A
    convolution after Pixels still pads with zeros, which stand for the mean, so the outputs of both
    graphs differ only by rounding.

    Args:
        graph: Graph with an image input of fixed shape and channels first; it is not changed. A
            graph that already takes bytes is returned unchanged.
        options: Options whose `mean` and `std` refer to pixel values from 0 to 1.

    Raises UsageError if the graph has no suitable image input.
    """
    name = image_input(graph)
    value = graph.inputs[name]
    if value.dtype == np.uint8 and _has_channels_last(graph, name):
        return graph
    if value.dtype != np.float32 or not _has_channels_first(graph, name):
        raise UsageError(
            f"the input {name!r} is {value.dtype} {value.shape}; pixels can replace float32"
            " (n, channels, height, width)"
        )
    shape = graph.shape(name)
    assert shape is not None
    batch, channels, height, width = shape
    mean, std = (per_channel(values, channels) for values in (options.mean, options.std))
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
    """Return the smallest and the largest number that a Pixels node can output."""
    pairs = list(zip(node.get("scale"), node.get("shift"), strict=True))
    return min(shift for _, shift in pairs), max(255 * scale + shift for scale, shift in pairs)


def _has_channels_first(graph: Graph, name: str) -> bool:
    shape = graph.shape(name)
    return shape is not None and len(shape) == 4 and shape[1] in COLORS


def _has_channels_last(graph: Graph, name: str) -> bool:
    shape = graph.shape(name)
    return shape is not None and len(shape) == 4 and shape[3] in COLORS
