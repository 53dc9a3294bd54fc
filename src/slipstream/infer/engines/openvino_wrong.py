"""What OpenVINO 2026.4 computes wrongly on the CPU, by ONNX's own tests of its operators.

Each entry names the test that shows it (`onnx.backend.test`, ONNX 1.23). A graph with one of them
is refused: results that are wrong on some inputs need not be wrong on the samples that judge. Three
deviations are not here, since they concern only numbers that are equal, or halves: which of equal
ones TopK takes, whether boxes that overlap by exactly the limit are one, and which way
DynamicQuantizeLinear rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from slipstream.infer.graph.graph import Graph, Node


@dataclass(frozen=True)
class Wrong:
    """A kind of operation that is wrong.

    Args:
        ops: names of its operators.
        what: is wrong about it, for people.
        test: that shows it.
        applies: whether a node of these operators is one, in its graph.
    """

    ops: tuple[str, ...]
    what: str
    test: str
    applies: Callable[[Graph, Node], bool] = lambda graph, node: True


def wrong_operations(graph: Graph) -> list[str]:
    """What OpenVINO computes wrongly in a graph, in words; none where nothing is known."""
    return [
        f"{node.op} {node.output or node.outputs[-1]}: {wrong.what}"
        for node in graph.nodes
        for wrong in WRONG
        if node.op in wrong.ops and not node.domain and wrong.applies(graph, node)
    ]


def _is_to_or_from_double(graph: Graph, node: Node) -> bool:
    before, after = (graph.value(name).dtype for name in (node.inputs[0], node.output))
    half, single, double = (np.dtype(kind) for kind in (np.float16, np.float32, np.float64))
    return (after == double and before in (half, single)) or (before == double and after == single)


def _has_peepholes(graph: Graph, node: Node) -> bool:
    return len(node.inputs) > 7 and bool(node.inputs[7])


def _has_window_outside(graph: Graph, node: Node) -> bool:
    """Rounded up, one more window would begin behind the input and what pads it before."""
    shape = graph.shape(node.inputs[0])
    if not node.get("ceil_mode", 0) or shape is None:
        return False
    kernel = list(node.get("kernel_shape"))
    count = len(kernel)
    strides, dilations = node.get("strides", [1] * count), node.get("dilations", [1] * count)
    pads = node.get("pads", [0] * 2 * count)
    for at, size in enumerate(shape[2:]):
        before, after = pads[at], pads[at + count]
        span = dilations[at] * (kernel[at] - 1) + 1
        windows = math.ceil((size + before + after - span) / strides[at]) + 1
        if (windows - 1) * strides[at] >= size + before:
            return True
    return False


def _may_be_of_infinities(graph: Graph, node: Node) -> bool:
    """Of an axis of no numbers, or compared with something, as where masks leave nothing."""
    readers = graph.uses().get(node.output, ())
    is_compared = any(reader.op in ("Equal", "IsInf") for reader in readers)
    return is_compared or 0 in (graph.shape(node.inputs[0]) or ())


def _is_odd_resize(graph: Graph, node: Node) -> bool:
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    return bool(node.get("antialias", 0) or node.get("exclude_outside", 0)) or policy != "stretch"


def _has_open_repeats(graph: Graph, node: Node) -> bool:
    shape = graph.shape(node.inputs[0])
    return node.inputs[1] not in graph.constants and (shape is None or len(shape) > 3)


WRONG = (
    Wrong(
        ("Cast", "CastLike"),
        "infinity and NaN do not survive float64",
        "test_castlike_FLOAT_to_DOUBLE",
        _is_to_or_from_double,
    ),
    Wrong(("LSTM",), "peepholes are left out", "test_lstm_with_peepholes", _has_peepholes),
    Wrong(
        ("MaxPool",),
        "windows that begin outside are counted",
        "test_maxpool_2d_ceil_output_size_reduce_by_one",
        _has_window_outside,
    ),
    Wrong(
        ("ReduceMax",),
        "of nothing, and of minus infinity alone, it is the least number",
        "test_reduce_max_empty_set",
        _may_be_of_infinities,
    ),
    Wrong(
        ("Resize",),
        "antialias, exclude_outside and keep_aspect_ratio_policy do not count",
        "test_resize_downsample_scales_linear_antialias",
        _is_odd_resize,
    ),
    Wrong(("Tile",), "repeats that are no constants", "test_tile", _has_open_repeats),
)
