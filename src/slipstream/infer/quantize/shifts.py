"""What rounding weights to int8 shifts the results of products by, and its correction.

A rounded weight errs the same way each time, and inputs have means: so every output channel is off
by a constant, the sum of its weights' errors times the means of what they multiply, which its bias
takes back (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
2019, with means that were measured).
"""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np

from slipstream.infer.graph.graph import Array, Graph, Node
from slipstream.infer.native.formats import Weights
from slipstream.infer.native.precision import is_large

DIGITS = 6  # of a shift


def shifts_of(graph: Graph, means: Mapping[str, Array]) -> dict[str, tuple[float, ...]]:
    """By the output of each product, what its output channels lose when weights are rounded.

    Args:
        graph: whose convolutions, of all channels or of each by itself, and matrices count.
        means: per input channel, of the values that such products read.
    """
    found: dict[str, tuple[float, ...]] = {}
    for node in graph.nodes:
        matrix, mean = _matrix(graph, node), means.get(node.inputs[0] if node.inputs else "")
        if matrix is None or mean is None or graph.shape(node.inputs[0]) is None:
            continue
        weights = Weights.quantise(matrix)
        errors = matrix - weights.numbers * weights.scale[:, None, None]
        sums = errors.sum(axis=2, dtype=np.float64)  # over the taps
        if sums.shape[1] == len(mean):
            shift = sums @ mean
        elif node.op == "Conv" and sums.shape[1] == 1 and len(sums) == len(mean):
            shift = sums[:, 0] * mean
        else:
            continue
        found[node.output] = tuple(float(f"{value:.{DIGITS}g}") for value in shift)
    return found


def _matrix(graph: Graph, node: Node) -> Array | None:
    """Constant weights as (output channels, input channels, taps)."""
    if node.op not in ("Conv", "Linear", "Gemm") or len(node.inputs) < 2:
        return None
    real, shape = graph.constants.get(node.inputs[1]), graph.shape(node.inputs[0])
    if real is None or real.dtype != np.float32 or shape is None:
        return None
    if node.op == "Conv":
        is_image = real.ndim == len(shape) == 4
        return real.reshape(*real.shape[:2], -1) if is_image else None
    if len(shape) == 4 or node.get("transA", 0) or node.get("alpha", 1.0) != 1:
        return None
    return (real if node.get("transB", 0) else real.T)[:, :, None]


def shifted(
    graph: Graph, shifts: Mapping[str, Sequence[float]], is_bytes: Container[str] | None = None
) -> Graph:
    """A copy in which the biases of products that read bytes take their shifts back; those of large
    matrices where it is not said which values are bytes."""
    result = graph.copy()
    for node in result.nodes:
        of_bytes = is_large(graph, node) if is_bytes is None else node.inputs[0] in is_bytes
        if node.output not in shifts or not of_bytes:
            continue
        shift = np.array(shifts[node.output], np.float32)
        bias = _bias(graph, node, len(shift))
        if bias is not None:
            name = result.constant(f"{node.output}:bias", bias + shift)
            node.inputs = [*node.inputs[:2], name]
    return result


def _bias(graph: Graph, node: Node, channels: int) -> Array | None:
    """The bias of a product, zeros where it has none; None for one that is not constant."""
    if node.get("beta", 1.0) != 1:
        return None
    if len(node.inputs) < 3 or not node.inputs[2]:
        return np.zeros(channels, np.float32)
    bias = graph.constants.get(node.inputs[2])
    if bias is None or bias.size != channels or bias.shape[-1:] != (channels,):
        return None
    return bias.reshape(channels)
