"""What operators share: constant operands, borders, windows."""

# NumPy is typed but for its element types.
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
from slipstream.infer.native.lower import Lowering
from slipstream.infer.native.places import Border, Place
from slipstream.infer.native.stages import Tail


def constant_of(lowering: Lowering, node: Node, index: int) -> Array:
    """An input that must be a constant; UnsupportedError where it is not."""
    name = node.inputs[index]
    if name not in lowering.graph.constants:
        raise UnsupportedError(f"our kernels have {node.op} with constants only, not with {name}")
    return lowering.graph.constants[name]


def bias_of(lowering: Lowering, node: Node, index: int, channels: int) -> Array:
    """A constant per channel, zeros where the input is absent."""
    if len(node.inputs) <= index or not node.inputs[index]:
        return np.zeros(channels, np.float32)
    bias = constant_of(lowering, node, index)
    if bias.size not in (1, channels) or (bias.ndim and bias.shape[-1] != bias.size):
        raise UnsupportedError(f"our kernels have no {node.op} with a bias {bias.shape}")
    return np.broadcast_to(bias.ravel(), channels).astype(np.float32)


def constant_operand(lowering: Lowering, node: Node) -> tuple[str, Array]:
    """The operand that is computed, and the other one: a number, or one per channel."""
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
        raise UnsupportedError(f"our kernels have no {node.op} of {shape} and {constant.shape}")
    return source, constant.ravel()


def read_tail(lowering: Lowering, tail: Tail) -> Format:
    """Read what the tail adds and multiplies by. The format of the addend, None without."""
    if tail.factor is not None and lowering.format(lowering.read(tail.factor)) is not None:
        raise UnsupportedError("factors of our kernels are float32")
    if tail.addend is None:
        return None
    return lowering.format(lowering.read(tail.addend))


@dataclass(frozen=True)
class Gate:
    """What a convolution's input is multiplied by, and room for its weights times that."""

    factors: str
    room: str


def operands_of(
    lowering: Lowering,
    source: str,
    output: str,
    tail: Tail,
    window: Callable[[Place], Place] = lambda place: place,
    part: Callable[[Place], Place] = lambda place: place,
    gate: Gate | None = None,
    ranges: str | None = None,
) -> kernels.Operands:
    """What a layer reads and writes: `window` of the input, `part` of the output and the addend;
    `ranges` is what the bytes of the input stand for, where that is known only then."""
    tensor, place = lowering.tensor, lowering.place
    return kernels.Operands(
        tensor(window(place(source))),
        tensor(part(place(output))),
        None if tail.addend is None else tensor(part(place(tail.addend))),
        None if tail.factor is None else tensor(tail.factor),
        None if gate is None else tensor(gate.factors),
        None if gate is None else tensor(gate.room),
        None if ranges is None else tensor(ranges),
    )


def fill_border(lowering: Lowering, source: str, border: Border) -> None:
    """Make the step that fills the border of a value with its zero."""
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
    """The taps of a convolution or pooling, and how far they reach beyond the input."""
    stride = [int(i) for i in node.get("strides", [1, 1])]
    dilation = [int(i) for i in node.get("dilations", [1, 1])]
    before, after = lowering.shape(node.inputs[0])[2:], lowering.shape(node.output)[2:]
    reach = [(n - 1) * d + 1 for n, d in zip(size, dilation, strict=True)]
    span = [(o - 1) * s + r for o, s, r in zip(after, stride, reach, strict=True)]
    pads = [int(i) for i in node.get("pads", [0, 0, 0, 0])]
    kind = node.get("auto_pad", "NOTSET")
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        whole = [max(s - b, 0) for s, b in zip(span, before, strict=True)]
        first = [w // 2 if kind == "SAME_UPPER" else w - w // 2 for w in whole]
        pads = first + [w - f for w, f in zip(whole, first, strict=True)]
    rest = [s - b - p for s, b, p in zip(span, before, pads[:2], strict=True)]
    border = Border(pads[0], pads[1], max(rest[0], 0), max(rest[1], 0))
    window = kernels.Window(tuple(size), tuple(stride), tuple(dilation), (pads[0], pads[1]))
    return window, border
