"""Plan convolutions and matrix products with constant weights.

Weights are packed when the steps are made, and not during planning, because a graph is planned
several times.
"""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from slipstream import _kernels as kernels
from slipstream.errors import UnsupportedError
from slipstream.infer.engines.protocol import Small
from slipstream.infer.graph.graph import Array
from slipstream.infer.native.epilogue import epilogue
from slipstream.infer.native.formats import BFloat16, Bytes, Format
from slipstream.infer.native.lowering import ONE, Lowering
from slipstream.infer.native.memory import MORE_OUTPUTS, Border
from slipstream.infer.native.operands import (
    Gate,
    bias_of,
    constant_of,
    fill_border,
    operands_of,
    read_tail,
    window_of,
)
from slipstream.infer.native.precision import is_large
from slipstream.infer.native.stages import Stage


@dataclass(frozen=True)
class _DenseProduct:
    """A convolution or matrix product whose output channels read all input channels.

    Args:
        source: Name of the value that is multiplied.
        matrix: Weights of shape (output channels, kernel rows, kernel columns, input channels).
        bias: One number per output channel. It is added to the channel's sums.
        axis: Axis of the output channels in the weights as the graph stores them.
        window: Window of the convolution (default: one tap, which suits a matrix product).
        border: Numbers of pixels around the source that the windows also read (default none).
        ranges: Name of the value that has the range of each row of the source (default None: all
            rows have the range of the source's format).
    """

    source: str
    matrix: Array
    bias: Array
    axis: int
    window: kernels.Window = ONE
    border: Border = field(default_factory=Border)
    ranges: str | None = None


def convolution(lowering: Lowering, stage: Stage) -> None:
    """Plan Conv with one group, or with one group per channel (depthwise)."""
    node = stage.node
    weights = constant_of(lowering, node, 1)
    if weights.ndim == 3:
        raise UnsupportedError("the native engine has no Conv over one dimension, only over two")
    groups = int(node.get("group", 1))
    bias = bias_of(lowering, node, 2, len(weights))
    window, border = window_of(lowering, node, weights.shape[2:])
    source = lowering.read(node.inputs[0], border)
    if groups > 1 and groups == len(weights) == lowering.shape(source)[1]:
        stride = int(node.get("strides", [1, 1])[1])
        lowering.read_ahead(source, MORE_OUTPUTS * stride + 2)
        _depthwise(lowering, stage, source, window, weights, bias, border)
    elif groups == 1:
        matrix = weights.transpose(0, 2, 3, 1)
        _dense(lowering, stage, _DenseProduct(source, matrix, bias, 0, window, border))
    else:
        raise UnsupportedError(
            f"the native engine has Conv with one group or one per channel, not {groups} groups"
        )


def linear(lowering: Lowering, stage: Stage) -> None:
    """Plan Linear (x, weight[K, N], bias), or Gemm with a constant matrix."""
    node = stage.node
    weights, axis = constant_of(lowering, node, 1), 1
    if node.op == "Gemm":
        if node.get("transA", 0) or node.get("alpha", 1.0) != 1 or node.get("beta", 1.0) != 1:
            raise UnsupportedError(
                "the native engine has Gemm with alpha = beta = 1 and transA = 0, not with "
                f"{node.attributes}"
            )
        if node.get("transB", 0):
            weights, axis = weights.T, 0
    if len(lowering.shape(node.inputs[0])) > 3:
        raise UnsupportedError(
            f"{node.op} of the native engine reads two or three dimensions, not "
            f"{lowering.shape(node.inputs[0])}"
        )
    bias = bias_of(lowering, node, 2, weights.shape[1])
    source, ranges = lowering.read(node.inputs[0]), None
    if lowering.is_dynamic and lowering.format(source) is None and is_large(lowering.graph, node):
        source, ranges = _quantised(lowering, source)
    product = _DenseProduct(source, weights.T[:, None, None], bias, axis, ranges=ranges)
    _dense(lowering, stage, product)


def _quantised(lowering: Lowering, source: str) -> tuple[str, str]:
    """Return the names of two values: the quantised input, and the ranges of the input's rows.

    Each row is quantised to uint8 between its least and its greatest number. The first product that
    reads the input plans the step that quantises it. Other products of the same input share the
    quantised input.
    """
    numbers, ranges = f"{source}:numbers", f"{source}:ranges"
    if numbers not in lowering.needs:
        shape = lowering.shape(source)
        lowering.write(numbers, shape, floats=True)
        lowering.needs[numbers].format = Bytes(1.0, 0)  # the ranges have the true scales and zeros
        lowering.write(ranges, (1, 2 * math.prod(shape[:-1])), floats=True)

        def emit(at: Lowering) -> None:
            at.program.quantise(at.tensor(source), at.tensor(numbers), at.tensor(ranges))

        lowering.emit_later(numbers, emit)
    return lowering.read(numbers), lowering.read(ranges)


def _dense(lowering: Lowering, stage: Stage, product: _DenseProduct) -> None:
    source = product.source
    addend, output = read_tail(lowering, stage.tail), lowering.write(stage.output)
    gate = _gate(lowering, source, output, product.matrix)

    def emit(at: Lowering) -> None:
        fill_border(at, source, product.border)
        operands = operands_of(at, source, output, stage.tail, gate=gate, ranges=product.ranges)
        format_ = at.format(source)
        if format_ is not None:
            dtype = "int8" if isinstance(format_, Bytes) else "bfloat16"
            at.small[stage.node.inputs[1]] = Small(dtype=dtype, axis=product.axis)
        bias = _shifted(at, stage, format_, product.bias)
        numbers, scale, offset = packed(format_, product.matrix, bias)
        end = epilogue(stage.tail, scale, offset, at.format(output), addend)
        end.coarse = at.is_dynamic and _become_bytes(at, stage.output)
        at.program.convolution(operands, product.window, numbers, end)

    lowering.emit_later(output, emit)


def _become_bytes(lowering: Lowering, name: str) -> bool:
    """Tell whether only large matrix products, which quantise their input, read a value."""
    readers, graph = lowering.graph.uses().get(name, []), lowering.graph
    return name not in graph.outputs and all(is_large(graph, node) for node in readers)


def _shifted(lowering: Lowering, stage: Stage, format_: Format, bias: Array) -> Array:
    """Return the bias, corrected for the mean error that rounding the weights to int8 causes."""
    shift = lowering.shifts.get(stage.node.output)
    if shift is None or not isinstance(format_, Bytes):
        return bias
    if len(shift) != len(bias):
        raise UnsupportedError(f"{len(bias)} output channels need as many shifts, not {len(shift)}")
    return bias + np.array(shift, np.float32)


def _gate(lowering: Lowering, source: str, output: str, matrix: Array) -> Gate | None:
    """Return the factors by which a convolution multiplies its weights (see `Lowering.gates`).

    If SqueezeExcite does not compute such factors for `source`, return None.
    """
    if source not in lowering.gates:
        return None
    channels = -(-matrix.shape[0] // 16) * 16
    floats = -(-matrix.shape[3] // 2) if lowering.format(source) else matrix.shape[3]
    factors = lowering.read(lowering.gates[source])
    return Gate(factors, lowering.write(f"{output}:weights", (1, channels * floats), floats=True))


def _depthwise(
    lowering: Lowering,
    stage: Stage,
    source: str,
    window: kernels.Window,
    weights: Array,
    bias: Array,
    border: Border,
) -> None:
    addend, output = read_tail(lowering, stage.tail), lowering.write(stage.output)

    def emit(at: Lowering) -> None:
        fill_border(at, source, border)
        operands = operands_of(at, source, output, stage.tail)
        format_ = at.format(source)
        numbers, scale, offset = for_bytes(format_, weights, _shifted(at, stage, format_, bias))
        taps = np.ascontiguousarray(numbers.reshape(len(numbers), -1).T, np.float32)
        end = epilogue(stage.tail, scale, offset, at.format(output), addend)
        at.program.depthwise(operands, window, taps, isinstance(format_, Bytes), end)

    lowering.emit_later(output, emit)


def packed(format_: Format, matrix: Array, bias: Array) -> tuple[Array, Array, Array]:
    """Return the results of `for_bytes`, with weights in the format that the kernel multiplies.

    The weights are int8 if the input is uint8; otherwise they have the format of the input.
    """
    numbers, scale, bias = for_bytes(format_, matrix, bias)
    if isinstance(format_, Bytes):
        return numbers, scale, bias
    rows = _rows(matrix)
    if isinstance(format_, BFloat16):
        halves = np.empty(rows.shape, np.uint16)
        kernels.as_halves(rows, halves)
        return halves, scale, bias
    floats = np.empty(rows.shape, np.float32)
    kernels.as_floats(rows, floats)
    return floats, scale, bias


def for_bytes(format_: Format, weights: Array, bias: Array) -> tuple[Array, Array, Array]:
    """Return the weights, scales and bias that a product needs if its input has a given format.

    There is one scale per output channel. It turns a sum of products into a real number.

    If the input is uint8, the weights are int8. The zero point of the input adds a constant to
    every sum, and the bias compensates for this constant.
    """
    if not isinstance(format_, Bytes):
        return weights, np.ones(len(weights), np.float32), bias
    rows = _rows(weights)
    numbers, scale = np.empty(rows.shape, np.int8), np.empty(len(rows), np.float32)
    sums = np.empty(len(rows), np.int32)
    kernels.as_bytes(rows, numbers, scale, sums)
    scale *= format_.scale
    return numbers.reshape(weights.shape), scale, bias - scale * format_.zero * sums


def _rows(weights: Array) -> Array:
    """Return the weights as a matrix with one row per output channel, if possible as a view."""
    return np.asarray(weights, np.float32).reshape(len(weights), -1)
