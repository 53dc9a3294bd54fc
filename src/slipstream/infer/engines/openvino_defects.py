"""Operators that OpenVINO 2026.4 computes wrongly on the CPU, according to ONNX's own tests.

Each entry of `DEFECTS` names the test that shows the error (`onnx.backend.test`, ONNX 1.23). A
graph with an operator in `DEFECTS` is refused. The comparison of engines may miss wrong results,
because they may be wrong only on inputs that are not among the samples. `DEFECTS` leaves out three
deviations that concern only ties: which of several equal numbers TopK chooses, the treatment of
boxes that overlap by exactly the limit, and the direction in which DynamicQuantizeLinear rounds
halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from slipstream.infer.graph.added_dtypes import DTYPES
from slipstream.infer.graph.graph import Graph, Node

FLOAT8_E4M3FN = DTYPES[TensorProto.FLOAT8E4M3FN]
FLOAT8_E5M2 = DTYPES[TensorProto.FLOAT8E5M2]


@dataclass(frozen=True)
class Defect:
    """A kind of node that OpenVINO computes wrongly.

    Args:
        ops: Names of the operators that OpenVINO computes wrongly.
        description: Explanation of the error, for messages.
        test: Name of the ONNX test that shows the error.
        applies: Function that takes a graph and one of its nodes with an operator in `ops`, and
            returns whether OpenVINO computes the node wrongly (default: always True).
    """

    ops: tuple[str, ...]
    description: str
    test: str
    applies: Callable[[Graph, Node], bool] = lambda graph, node: True


def defects_of(graph: Graph) -> list[str]:
    """Return descriptions of the nodes that OpenVINO computes wrongly."""
    return [
        f"{node.op} {node.output or node.outputs[-1]}: {defect.description}"
        for node in graph.nodes
        for defect in DEFECTS
        if node.op in defect.ops and not node.domain and defect.applies(graph, node)
    ]


def _is_to_or_from_double(graph: Graph, node: Node) -> bool:
    before, after = (graph.value(name).dtype for name in (node.inputs[0], node.output))
    half, single, double = (np.dtype(kind) for kind in (np.float16, np.float32, np.float64))
    return (after == double and before in (half, single)) or (before == double and after == single)


def _is_to_small_float8(graph: Graph, node: Node) -> bool:
    """Return whether OpenVINO may be wrong in a cast to float8 of numbers beyond float8's range.

    The result is True for every cast to float8e4m3fn, and for a saturating cast to float8e5m2.
    """
    dtype = graph.value(node.output).dtype
    clips = bool(node.get("saturate", 1))
    return dtype == FLOAT8_E4M3FN or (dtype == FLOAT8_E5M2 and clips)


def _has_peepholes(graph: Graph, node: Node) -> bool:
    return len(node.inputs) > 7 and bool(node.inputs[7])


def _has_window_outside(graph: Graph, node: Node) -> bool:
    """Tell whether `ceil_mode` adds a window that begins after the end of the input."""
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


def _is_of_nothing(graph: Graph, node: Node) -> bool:
    """Tell whether an axis of the input has length 0."""
    return 0 in (graph.shape(node.inputs[0]) or ())


def _is_odd_resize(graph: Graph, node: Node) -> bool:
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    return bool(node.get("antialias", 0) or node.get("exclude_outside", 0)) or policy != "stretch"


def _has_open_repeats(graph: Graph, node: Node) -> bool:
    shape = graph.shape(node.inputs[0])
    return node.inputs[1] not in graph.constants and (shape is None or len(shape) > 3)


DEFECTS = (
    Defect(
        ("Cast", "CastLike"),
        "infinity and NaN are lost on the way to or from float64",
        "test_castlike_FLOAT_to_DOUBLE",
        _is_to_or_from_double,
    ),
    Defect(
        ("Cast", "CastLike"),
        "numbers beyond the range of float8 become NaN or infinity",
        "test_castlike_FLOAT_to_FLOAT8E4M3FN",
        _is_to_small_float8,
    ),
    Defect(("LSTM",), "peepholes are ignored", "test_lstm_with_peepholes", _has_peepholes),
    Defect(
        ("MaxPool",),
        "windows that begin outside the input count",
        "test_maxpool_2d_ceil_output_size_reduce_by_one",
        _has_window_outside,
    ),
    Defect(
        ("ReduceMax",),
        "the maximum of nothing becomes the least finite number",
        "test_reduce_max_empty_set",
        _is_of_nothing,
    ),
    Defect(
        ("Resize",),
        "antialias, exclude_outside and keep_aspect_ratio_policy are ignored",
        "test_resize_downsample_scales_linear_antialias",
        _is_odd_resize,
    ),
    Defect(
        ("Tile",),
        "repeats that are not constants are wrong for more than three dimensions",
        "test_tile",
        _has_open_repeats,
    ),
)
