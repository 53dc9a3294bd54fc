"""Plan element-wise operators that are not fused into the epilogue of a product.

The kernel of depthwise convolutions computes most element-wise operators, with a single tap of
weight 1.
"""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.graph.graph import Array, Node
from slipstream.infer.native.epilogue import epilogue
from slipstream.infer.native.formats import Bytes
from slipstream.infer.native.lowering import ONE, Lowering
from slipstream.infer.native.memory import pixels
from slipstream.infer.native.operands import constant_operand, operands_of, read_tail
from slipstream.infer.native.stages import Stage


def pointwise(lowering: Lowering, stage: Stage) -> None:
    """Plan an activation, a clip, an addition, or a multiplication by constants."""
    node = stage.node
    source = node.inputs[0]
    factor, bias = np.ones(1, np.float32), np.zeros(1, np.float32)
    addend = _constant_addend(lowering, node)
    if addend is not None and stage.tail.addend is None:
        source = next(name for name in node.inputs if name != addend)
        stage.tail.addend = addend
    elif node.op in ("Add", "Mul") and any(n in lowering.graph.constants for n in node.inputs):
        source, constant = constant_operand(lowering, node)
        factor, bias = (constant, bias) if node.op == "Mul" else (factor, constant)
    elif node.op == "Add" and lowering.shape(node.inputs[0]) != lowering.shape(node.inputs[1]):
        raise UnsupportedError("the native engine adds computed tensors of one shape")
    elif node.op == "Clip" and (node.attributes or not _bounds_are_constant(lowering, node)):
        raise UnsupportedError(
            "the native engine has Clip with constant bounds given as inputs only"
        )
    elif node.op == "Gelu" and node.get("approximate", "none") != "none":
        raise UnsupportedError("the native engine has Gelu with approximate='none' only")
    _scaled(lowering, stage, source, factor, bias)


def _scaled(lowering: Lowering, stage: Stage, source: str, factor: Array, bias: Array) -> None:
    source = lowering.read(source)
    format_ = lowering.format(source)
    shape = lowering.shape(source)
    channels = shape[1] if len(shape) == 4 else shape[-1]
    scale = np.broadcast_to(factor, channels).astype(np.float32)
    add = np.broadcast_to(bias, channels).astype(np.float32)
    if isinstance(format_, Bytes):
        scale, add = scale * format_.scale, add - scale * format_.scale * format_.zero
    addend = read_tail(lowering, stage.tail)
    output = lowering.write(stage.output)
    end = epilogue(stage.tail, scale, add, lowering.format(output), addend)
    taps = np.ones((1, channels), np.float32)

    def emit(at: Lowering) -> None:
        operands = operands_of(at, source, output, stage.tail)
        at.program.depthwise(operands, ONE, taps, True, end)

    lowering.emit_later(output, emit)


def _bounds_are_constant(lowering: Lowering, node: Node) -> bool:
    return all(not name or name in lowering.graph.constants for name in node.inputs[1:])


def _constant_addend(lowering: Lowering, node: Node) -> str | None:
    """Return the name of an Add's constant operand, or None.

    Only a constant that has the shape of the result counts.
    """
    shape = lowering.shape(node.output)
    for name in node.inputs:
        constant = lowering.graph.constants.get(name)
        if node.op == "Add" and constant is not None and constant.shape == shape and len(shape) > 1:
            return name
    return None


def multiply(lowering: Lowering, stage: Stage) -> None:
    """Plan Mul by one number per channel; the numbers are constants or a computed value."""
    node = stage.node
    first, second = node.inputs
    if _is_pixel(lowering.shape(first)) and first not in lowering.graph.constants:
        first, second = second, first
    shape, factors = lowering.shape(first), lowering.shape(second)
    is_factor = (
        len(shape) == len(factors)
        and _is_pixel(factors)
        and pixels(factors)[::3] == pixels(shape)[::3]
    )
    if second in lowering.graph.constants or not is_factor:
        if any(name in lowering.graph.constants for name in node.inputs):
            return pointwise(lowering, stage)
        raise UnsupportedError(
            f"the native engine has Mul by one number per channel, not {shape} by {factors}"
        )
    if lowering.format(second) is not None:
        raise UnsupportedError("the native engine reads the factors of Mul as float32")
    gate_by(lowering, first, second, stage.output)
    return None


def _is_pixel(shape: Sequence[int]) -> bool:
    """Tell whether the images in a value of this shape have one pixel.

    The rows of a matrix (batch, channels) count as images with one pixel.
    """
    return len(shape) in (2, 4) and pixels(shape)[1:3] == (1, 1)


def gate_by(lowering: Lowering, source: str, factors: str, output: str) -> None:
    """Plan the multiplication of a value by one number per channel."""
    lowering.read(source)
    lowering.read(factors)
    lowering.write(output)
    from_, to = lowering.format(source), lowering.format(output)
    offset, scale = 0.0, 1.0
    if isinstance(from_, Bytes):
        offset, scale = -float(from_.zero), from_.scale
    shift, low, high = 0.0, -np.inf, np.inf
    if isinstance(to, Bytes):
        scale, shift, low, high = scale / to.scale, float(to.zero), 0.0, 255.0

    def emit(at: Lowering) -> None:
        at.program.gate(
            at.tensor(source),
            at.tensor(factors),
            at.tensor(output),
            offset,
            scale,
            shift,
            low,
            high,
        )

    lowering.emit_later(output, emit)
