"""Helpers for planning operators: they find constant operands, borders and windows."""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream import _kernels as kernels
from slipstream.errors import UnsupportedError
from slipstream.infer.graph.graph import Array, Node
from slipstream.infer.native.formats import Bytes, Format
from slipstream.infer.native.lowering import Lowering
from slipstream.infer.native.memory import Border, Location
from slipstream.infer.native.stages import Tail


def constant_of(lowering: Lowering, node: Node, index: int) -> Array:
    """Return an input that must be a constant.

    Raises:
        UnsupportedError: the input is not a constant, but computed.
    """
    name = node.inputs[index]
    if name not in lowering.graph.constants:
        raise UnsupportedError(
            f"the native engine has {node.op} with constants only; {name} is computed"
        )
    return lowering.graph.constants[name]


def bias_of(lowering: Lowering, node: Node, index: int, channels: int) -> Array:
    """Return a bias, which must be a constant, with one number per channel.

    If the node has no such input, return zeros.
    """
    if len(node.inputs) <= index or not node.inputs[index]:
        return np.zeros(channels, np.float32)
    bias = constant_of(lowering, node, index)
    if bias.size not in (1, channels) or (bias.ndim and bias.shape[-1] != bias.size):
        raise UnsupportedError(
            f"the native engine has {node.op} with a bias of {channels} channels, not {bias.shape}"
        )
    return np.broadcast_to(bias.ravel(), channels).astype(np.float32)


def constant_operand(lowering: Lowering, node: Node) -> tuple[str, Array]:
    """Return the operands of a node that has one computed operand and one constant operand.

    The pair consists of the name of the computed operand, and the array of the constant. The
    constant is one number, or one number per channel.
    """
    source, other = node.inputs
    if source in lowering.graph.constants:
        source, other = other, source
    constant = lowering.graph.constants[other].astype(np.float32)
    shape = lowering.shape(source)
    axis = 1 if len(shape) == 4 else len(shape) - 1
    sizes = (1,) * (len(shape) - constant.ndim) + constant.shape
    if len(sizes) > len(shape) or any(
        size != 1 and (at != axis or size != shape[at]) for at, size in enumerate(sizes)
    ):
        raise UnsupportedError(
            f"the native engine has {node.op} with one constant per channel, not of {shape} and "
            f"{constant.shape}"
        )
    return source, constant.ravel()


def read_tail(lowering: Lowering, tail: Tail) -> Format:
    """Record that the tail's operands are read; return the format of the tail's addend.

    If the tail has no addend, return None.
    """
    if tail.factor is not None and lowering.format(lowering.read(tail.factor)) is not None:
        raise UnsupportedError("the native engine reads factors as float32")
    if tail.addend is None:
        return None
    return lowering.format(lowering.read(tail.addend))


@dataclass(frozen=True)
class Gate:
    """Factors for a convolution's input channels, by which its weights are multiplied."""

    factors: str  # name of the factors
    room: str  # name of the memory for the multiplied weights


def operands_of(
    lowering: Lowering,
    source: str,
    output: str,
    tail: Tail,
    window: Callable[[Location], Location] = lambda location: location,
    part: Callable[[Location], Location] = lambda location: location,
    gate: Gate | None = None,
    ranges: str | None = None,
) -> kernels.Operands:
    """Return the tensors that a kernel reads and writes.

    Args:
        lowering: State of the lowering; the kernel is added to its program.
        source: Name of the value that the kernel reads as its input.
        output: Name of the value that the kernel computes.
        tail: Operators that are fused into the kernel.
        window: Function that selects the part of the input that the kernel reads (default: all).
        part: Function that selects the part of the output that the kernel computes (default: all).
            It is also applied to the tail's addend.
        gate: Factors by which the kernel multiplies the input channels (default none).
        ranges: Name of the value that has the range of each row of the input; every call measures
            these ranges (default None: all rows have the range of the input's format).
    """
    tensor, location = lowering.tensor, lowering.location
    return kernels.Operands(
        tensor(window(location(source))),
        tensor(part(location(output))),
        None if tail.addend is None else tensor(part(location(tail.addend))),
        None if tail.factor is None else tensor(tail.factor),
        None if gate is None else tensor(gate.factors),
        None if gate is None else tensor(gate.room),
        None if ranges is None else tensor(ranges),
    )


def fill_border(lowering: Lowering, source: str, border: Border) -> None:
    """Add a step that fills the border of a value with the number that represents 0."""
    if border == Border():
        return
    while source in lowering.views:
        source = lowering.views[source][0]
    format_ = lowering.format(source)
    around = (border.above, border.left, border.below, border.right)
    lowering.program.border(
        lowering.tensor(source), around, format_.zero if isinstance(format_, Bytes) else 0
    )


def window_of(lowering: Lowering, node: Node, size: Sequence[int]) -> tuple[kernels.Window, Border]:
    """Return the window of a convolution or pooling, and the border of its input.

    The border consists of the pixels around the input that the windows reach.
    """
    stride = [int(i) for i in node.get("strides", [1, 1])]
    dilation = [int(i) for i in node.get("dilations", [1, 1])]
    before, after = lowering.shape(node.inputs[0])[2:], lowering.shape(node.output)[2:]
    reach = [(n - 1) * d + 1 for n, d in zip(size, dilation, strict=True)]
    span = [(o - 1) * s + r for o, s, r in zip(after, stride, reach, strict=True)]
    pads = [int(i) for i in node.get("pads", [0, 0, 0, 0])]
    kind = node.get("auto_pad", "NOTSET")
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        total = [max(s - b, 0) for s, b in zip(span, before, strict=True)]
        first = [t // 2 if kind == "SAME_UPPER" else t - t // 2 for t in total]
        pads = first + [t - f for t, f in zip(total, first, strict=True)]
    last = [s - b - p for s, b, p in zip(span, before, pads[:2], strict=True)]
    border = Border(pads[0], pads[1], max(last[0], 0), max(last[1], 0))
    window = kernels.Window(tuple(size), tuple(stride), tuple(dilation), (pads[0], pads[1]))
    return window, border
