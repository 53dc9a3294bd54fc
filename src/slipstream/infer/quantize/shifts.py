"""Compute and correct the mean error of products whose weights are rounded to int8.

Products are matrix products and convolutions. The rounding error of a weight is the same for every
sample, and the mean of the numbers that the weight multiplies is not zero. So every output channel
has a constant mean error: the sum, over the channel's weights, of the weight's error times the mean
of the numbers that it multiplies. A change of the bias corrects the mean error (Nagel et al.,
"Data-Free Quantization Through Weight Equalization and Bias Correction", 2019). Unlike in the paper
of Nagel et al., the means are measured on samples.
"""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np

from slipstream.infer.graph.graph import Array, Graph, Node
from slipstream.infer.native.formats import Weights
from slipstream.infer.native.precision import is_large

DIGITS = 6  # significant digits of a shift in a recipe; float32 has about seven


def shifts_of(graph: Graph, means: Mapping[str, Array]) -> dict[str, tuple[float, ...]]:
    """Return a shift for each output channel of the products, by the name of the product's output.

    A shift is the number to add to the bias to cancel the mean error of the channel.

    Args:
        graph: Graph whose products are corrected: matrix products, and dense or depthwise
            convolutions.
        means: Means of the channels of each value that a corrected product reads, by the name of
            the value.
    """
    shifts: dict[str, tuple[float, ...]] = {}
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
        shifts[node.output] = tuple(float(f"{value:.{DIGITS}g}") for value in shift)
    return shifts


def _matrix(graph: Graph, node: Node) -> Array | None:
    """Return a product's weights as an array (output channels, input channels, taps).

    The result is None if the node is no product, or if its weights cannot be corrected.
    """
    if node.op not in ("Conv", "Linear", "Gemm") or len(node.inputs) < 2:
        return None
    weights, shape = graph.constants.get(node.inputs[1]), graph.shape(node.inputs[0])
    if weights is None or weights.dtype != np.float32 or shape is None:
        return None
    if node.op == "Conv":
        is_image = weights.ndim == len(shape) == 4
        return weights.reshape(*weights.shape[:2], -1) if is_image else None
    if len(shape) == 4 or node.get("transA", 0) or node.get("alpha", 1.0) != 1:
        return None
    return (weights if node.get("transB", 0) else weights.T)[:, :, None]


def shifted(
    graph: Graph, shifts: Mapping[str, Sequence[float]], is_bytes: Container[str] | None = None
) -> Graph:
    """Return a copy of the graph, with shifts added to the biases of the products in int8.

    Args:
        graph: Graph to copy.
        shifts: Numbers to add to a product's bias, one per output channel, by the name of the
            product's output.
        is_bytes: Names of the values in int8; the products that read them are in int8 (default
            None: all products with a large constant matrix are in int8).
    """
    result = graph.copy()
    for node in result.nodes:
        reads_bytes = is_large(graph, node) if is_bytes is None else node.inputs[0] in is_bytes
        if node.output not in shifts or not reads_bytes:
            continue
        shift = np.array(shifts[node.output], np.float32)
        bias = _bias(graph, node, len(shift))
        if bias is not None:
            name = result.constant(f"{node.output}:bias", bias + shift)
            node.inputs = [*node.inputs[:2], name]
    return result


def _bias(graph: Graph, node: Node, channels: int) -> Array | None:
    """Return a product's bias; zeros if it has no bias, None if its bias is not constant."""
    if node.get("beta", 1.0) != 1:
        return None
    if len(node.inputs) < 3 or not node.inputs[2]:
        return np.zeros(channels, np.float32)
    bias = graph.constants.get(node.inputs[2])
    if bias is None or bias.size != channels or bias.shape[-1:] != (channels,):
        return None
    return bias.reshape(channels)
