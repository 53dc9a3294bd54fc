"""Plan transposed convolutions.

Output pixels that are `stride` apart use the same taps (positions of the kernel). A transposed
convolution is therefore computed as stride x stride ordinary convolutions (phases). Each phase
writes every stride-th pixel of every stride-th row. So no kernel multiplies by the zeros that a
direct computation inserts.
"""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from slipstream import _kernels as kernels
from slipstream.errors import UnsupportedError
from slipstream.infer.graph.graph import Array, Node
from slipstream.infer.native.epilogue import epilogue
from slipstream.infer.native.formats import Bytes, Format
from slipstream.infer.native.lowering import Lowering
from slipstream.infer.native.memory import Border, Location
from slipstream.infer.native.operands import (
    bias_of,
    constant_of,
    fill_border,
    operands_of,
    read_tail,
)
from slipstream.infer.native.products import for_bytes, packed
from slipstream.infer.native.stages import Stage


@dataclass(frozen=True)
class AxisPhase:
    """The outputs along one axis that are computed with the same taps of the kernel.

    Args:
        first: Index of the phase's first output.
        count: Number of outputs of the phase; each output is `stride` after the previous output.
        taps: Indices of the taps. Consecutive taps multiply consecutive inputs.
        begin: Index of the input that the first tap multiplies for the first output. The index is
            negative if this input is in the border.
    """

    first: int
    count: int
    taps: range
    begin: int

    @property
    def end(self) -> int:
        """Index after the last input that the phase reads."""
        return self.begin + self.count - 1 + len(self.taps)


def phases_of(size: int, kernel: int, stride: int, before: int) -> list[AxisPhase]:
    """Return the phases of an output axis (see `AxisPhase`).

    Output o is the sum of tap k times input i, over all taps k for which i = (o + before - k) /
    stride is an integer.

    Args:
        size: Number of outputs along the axis.
        kernel: Number of taps along the axis.
        stride: Stride of the convolution.
        before: Padding at the beginning of the axis, as in the node's `pads`: the number of outputs
            that are left out before the first output.
    """
    phases: list[AxisPhase] = []
    for first in range(min(stride, size)):
        phase = (first + before) % stride
        last = max(len(range(phase, kernel, stride)), 1) - 1
        taps = range(phase + last * stride, -1, -stride)
        begin = (first + before) // stride - last
        phases.append(AxisPhase(first, len(range(first, size, stride)), taps, begin))
    return phases


def transposed_convolution(lowering: Lowering, stage: Stage) -> None:
    """Plan ConvTranspose with one group, or with one group per channel (depthwise)."""
    node = stage.node
    weights = constant_of(lowering, node, 1)
    shape, after = lowering.shape(node.inputs[0]), lowering.shape(node.output)
    stride = _supported(node, weights)
    groups = int(node.get("group", 1))
    is_depthwise = groups > 1 and groups == shape[1] == after[1]
    if groups > 1 and not is_depthwise:
        raise UnsupportedError(
            "the native engine has ConvTranspose with one group or one per channel, not with "
            f"{groups} groups"
        )
    pads = [int(i) for i in node.get("pads", [0, 0, 0, 0])]
    axes = [phases_of(after[2 + i], weights.shape[2 + i], stride[i], pads[i]) for i in (0, 1)]
    source = lowering.read(node.inputs[0], _border(axes, shape[2:]))
    bias = bias_of(lowering, node, 2, after[1])
    addend, output = read_tail(lowering, stage.tail), lowering.write(stage.output)
    add_step = _add_depthwise if is_depthwise else _add_dense

    def emit(at: Lowering) -> None:
        fill_border(at, source, _border(axes, shape[2:]))
        for rows, columns in product(*axes):
            add_step(
                at,
                stage,
                addend,
                _PhaseConvolution(source, output, rows, columns, stride),
                weights,
                bias,
            )

    lowering.emit_later(output, emit)


def _supported(node: Node, weights: Array) -> tuple[int, int]:
    """Return a node's strides; raise UnsupportedError if no kernel suits its attributes."""
    is_padded = node.get("auto_pad", "NOTSET") != "NOTSET" or node.get("output_shape") is not None
    if weights.ndim != 4 or is_padded or set(node.get("dilations", [1])) != {1}:
        raise UnsupportedError(
            "the native engine has ConvTranspose over two dimensions with explicit pads and no "
            f"dilation, not with {node.attributes}"
        )
    down, right = node.get("strides", [1, 1])
    return int(down), int(right)


def _border(axes: Sequence[Sequence[AxisPhase]], sizes: Sequence[int]) -> Border:
    before = [max(0, *(-line.begin for line in lines)) for lines in axes]
    after = [
        max(0, *(line.end - size for line in lines))
        for lines, size in zip(axes, sizes, strict=True)
    ]
    return Border(before[0], before[1], after[0], after[1])


@dataclass(frozen=True)
class _PhaseConvolution:
    """The ordinary convolution for one phase of the rows and one phase of the columns."""

    source: str
    output: str
    rows: AxisPhase
    columns: AxisPhase
    stride: tuple[int, int]

    @property
    def window(self) -> kernels.Window:
        return kernels.Window((len(self.rows.taps), len(self.columns.taps)), (1, 1), (1, 1), (0, 0))

    def weights(self, kernel: Array) -> Array:
        """Return the phase's taps of a kernel [in, out, rows, columns].

        If the kernel has no taps for the phase, return zeros.
        """
        height, width = kernel.shape[2:]
        if self.rows.taps[0] >= height or self.columns.taps[0] >= width:
            sizes = len(self.rows.taps), len(self.columns.taps)
            return np.zeros((*kernel.shape[:2], *sizes), np.float32)
        return kernel[:, :, list(self.rows.taps)][:, :, :, list(self.columns.taps)]

    def operands(self, at: Lowering, stage: Stage) -> kernels.Operands:
        return operands_of(at, self.source, self.output, stage.tail, self._from, self._to)

    def _from(self, location: Location) -> Location:
        by = self.rows.begin * location.pitch[1] + self.columns.begin * location.pitch[2]
        return replace(location, offset=location.offset + by)

    def _to(self, location: Location) -> Location:
        batch, row, pixel = location.pitch
        return replace(
            location,
            offset=location.offset + self.rows.first * row + self.columns.first * pixel,
            sizes=(location.sizes[0], self.rows.count, self.columns.count, location.sizes[3]),
            pitch=(batch, row * self.stride[0], pixel * self.stride[1]),
        )


def _add_dense(
    at: Lowering, stage: Stage, addend: Format, part: _PhaseConvolution, weights: Array, bias: Array
) -> None:
    matrix = part.weights(weights).transpose(1, 2, 3, 0)
    numbers, scale, bias = packed(at.format(part.source), matrix, bias)
    end = epilogue(stage.tail, scale, bias, at.format(part.output), addend)
    at.program.convolution(part.operands(at, stage), part.window, numbers, end)


def _add_depthwise(
    at: Lowering, stage: Stage, addend: Format, part: _PhaseConvolution, weights: Array, bias: Array
) -> None:
    format_ = at.format(part.source)
    numbers, scale, bias = for_bytes(format_, part.weights(weights), bias)
    taps = np.ascontiguousarray(numbers.reshape(len(numbers), -1).T, np.float32)
    end = epilogue(stage.tail, scale, bias, at.format(part.output), addend)
    are_integers = isinstance(format_, Bytes)
    at.program.depthwise(part.operands(at, stage), part.window, taps, are_integers, end)
