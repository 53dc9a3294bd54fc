"""Compute the epilogue of a kernel: the operations on each sum before the result is written.

The epilogue applies the scale, the bias, and the operators of a stage's tail (see `stages`). Last,
the epilogue converts the number to the format of the output.
"""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np

from slipstream import _kernels as kernels
from slipstream.infer.graph.graph import Array
from slipstream.infer.native.formats import Bytes, Format, number_of
from slipstream.infer.native.stages import Tail


def epilogue(
    tail: Tail, scale: Array, bias: Array, output: Format, addend: Format
) -> kernels.Epilogue:
    """Return the epilogue of a kernel: sum * scale + bias, then the tail, then the conversion.

    Scales and zero points of uint8 need no extra operations: they are folded into the factors and
    addends that the epilogue applies anyway.

    Args:
        tail: Operators that are fused into the kernel.
        scale: One factor per output channel. It turns the channel's sums of quantised products into
            real numbers.
        bias: One number per output channel. It is added to the channel's scaled sums.
        output: Format in which the result is stored.
        addend: Format of the tail's addend (see `Tail`); None means float32.
    """
    stretch, shift = 1.0, 0.0
    if isinstance(output, Bytes):
        stretch, shift = 1 / output.scale, float(output.zero)
    multiplied_bias = bias  # the factor multiplies this bias, too
    if tail.factor is not None:
        bias = np.zeros_like(bias) if tail.offset is None else tail.offset.astype(np.float32)
    weight, offset = 1.0, 0.0
    if isinstance(addend, Bytes):
        weight, offset = addend.scale, -addend.scale * addend.zero
    if tail.addend is None:
        offset = 0.0
    active = tail.activation != "NONE"
    if tail.after and active:
        shift += offset * stretch
    else:
        bias = bias + offset
    if not active:
        scale, bias, weight = scale * stretch, bias * stretch + shift, weight * stretch
        multiplied_bias = multiplied_bias * stretch
    kernel = kernels.Epilogue(
        _floats(scale), _floats(bias if tail.factor is None else multiplied_bias)
    )
    if tail.factor is not None:
        kernel.offset(_floats(bias))
    kernel.activation = getattr(kernels.Activation, tail.activation)
    kernel.alpha, kernel.beta = tail.alpha, tail.beta
    kernel.stretch, kernel.shift = (stretch, shift) if active else (1.0, 0.0)
    kernel.addend_weight = weight
    if tail.addend is not None:
        kernel.adds = kernels.Adds.AFTER if tail.after else kernels.Adds.BEFORE
        kernel.addend = number_of(addend)
    kernel.low, kernel.high = _clip(tail, output)
    kernel.output = number_of(output)
    return kernel


def _floats(values: Array) -> Array:
    return np.ascontiguousarray(values, np.float32)


def _clip(tail: Tail, output: Format) -> tuple[float, float]:
    if not isinstance(output, Bytes):
        return tail.low, tail.high
    low = tail.low / output.scale + output.zero
    high = tail.high / output.scale + output.zero
    return float(np.clip(low, 0, 255)), float(np.clip(high, 0, 255))
