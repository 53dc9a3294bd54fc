"""Transposed convolutions.

Output pixels that are `stride` apart see the same taps. So it is stride x stride ordinary
convolutions, each of which writes every stride-th pixel of every stride-th row, and no product is
with a zero.
"""

# NumPy is typed but for its element types.
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
from slipstream.infer.native.formats import Bytes, Format
from slipstream.infer.native.lower import Lowering, epilogue
from slipstream.infer.native.operands import (
    bias_of,
    constant_of,
    fill_border,
    operands_of,
    read_tail,
)
from slipstream.infer.native.places import Border, Place
from slipstream.infer.native.products import for_bytes, packed
from slipstream.infer.native.stages import Stage


@dataclass(frozen=True)
class Line:
    """One of the convolutions, along one axis.

    Args:
        first: the output that it computes first.
        count: how many it computes, each `stride` after the one before.
        taps: of the kernel, in the order of the inputs that they multiply.
        begin: the input of the first output's first tap; below 0: in the border.
    """

    first: int
    count: int
    taps: range
    begin: int

    @property
    def end(self) -> int:
        """The input after the last one that is read."""
        return self.begin + self.count - 1 + len(self.taps)


def lines_of(size: int, kernel: int, stride: int, before: int) -> list[Line]:
    """What outputs 0 to size - 1 of an axis need: output o is the sum over taps k of
    input (o + before - k) / stride, where that is whole."""
    found: list[Line] = []
    for first in range(min(stride, size)):
        phase = (first + before) % stride
        last = max(len(range(phase, kernel, stride)), 1) - 1
        taps = range(phase + last * stride, -1, -stride)
        begin = (first + before) // stride - last
        found.append(Line(first, len(range(first, size, stride)), taps, begin))
    return found


def transposed_convolution(lowering: Lowering, stage: Stage) -> None:
    """ConvTranspose of all channels, or of each by itself."""
    node = stage.node
    weights = constant_of(lowering, node, 1)
    shape, after = lowering.shape(node.inputs[0]), lowering.shape(node.output)
    stride = _supported(node, weights)
    groups = int(node.get("group", 1))
    alone = groups > 1 and groups == shape[1] == after[1]
    if groups > 1 and not alone:
        raise UnsupportedError(f"our kernels have no ConvTranspose with {groups} groups")
    pads = [int(i) for i in node.get("pads", [0, 0, 0, 0])]
    axes = [lines_of(after[2 + i], weights.shape[2 + i], stride[i], pads[i]) for i in (0, 1)]
    source = lowering.read(node.inputs[0], _border(axes, shape[2:]))
    bias = bias_of(lowering, node, 2, after[1])
    addend, output = read_tail(lowering, stage.tail), lowering.write(stage.output)
    make = _each_by_itself if alone else _all_together

    def emit(at: Lowering) -> None:
        fill_border(at, source, _border(axes, shape[2:]))
        for rows, columns in product(*axes):
            make(at, stage, addend, _Part(source, output, rows, columns, stride), weights, bias)

    lowering.then(output, emit)


def _supported(node: Node, weights: Array) -> tuple[int, int]:
    """The strides; UnsupportedError for forms without a kernel."""
    odd = node.get("auto_pad", "NOTSET") != "NOTSET" or node.get("output_shape") is not None
    if weights.ndim != 4 or odd or set(node.get("dilations", [1])) != {1}:
        raise UnsupportedError(f"our kernels have no ConvTranspose with {node.attributes}")
    down, right = node.get("strides", [1, 1])
    return int(down), int(right)


def _border(axes: Sequence[Sequence[Line]], sizes: Sequence[int]) -> Border:
    before = [max(0, *(-line.begin for line in lines)) for lines in axes]
    after = [
        max(0, *(line.end - size for line in lines))
        for lines, size in zip(axes, sizes, strict=True)
    ]
    return Border(before[0], before[1], after[0], after[1])


@dataclass(frozen=True)
class _Part:
    """One of the convolutions."""

    source: str
    output: str
    rows: Line
    columns: Line
    stride: tuple[int, int]

    @property
    def window(self) -> kernels.Window:
        return kernels.Window((len(self.rows.taps), len(self.columns.taps)), (1, 1), (1, 1), (0, 0))

    def weights(self, whole: Array) -> Array:
        """Its taps of weights [in, out, rows, columns]; zeros where the kernel has none."""
        height, width = whole.shape[2:]
        if self.rows.taps[0] >= height or self.columns.taps[0] >= width:
            sizes = len(self.rows.taps), len(self.columns.taps)
            return np.zeros((*whole.shape[:2], *sizes), np.float32)
        return whole[:, :, list(self.rows.taps)][:, :, :, list(self.columns.taps)]

    def operands(self, at: Lowering, stage: Stage) -> kernels.Operands:
        return operands_of(at, self.source, self.output, stage.tail, self._from, self._to)

    def _from(self, place: Place) -> Place:
        by = self.rows.begin * place.pitch[1] + self.columns.begin * place.pitch[2]
        return replace(place, offset=place.offset + by)

    def _to(self, place: Place) -> Place:
        batch, row, pixel = place.pitch
        return replace(
            place,
            offset=place.offset + self.rows.first * row + self.columns.first * pixel,
            sizes=(place.sizes[0], self.rows.count, self.columns.count, place.sizes[3]),
            pitch=(batch, row * self.stride[0], pixel * self.stride[1]),
        )


def _all_together(
    at: Lowering, stage: Stage, addend: Format, part: _Part, weights: Array, bias: Array
) -> None:
    matrix = part.weights(weights).transpose(1, 2, 3, 0)
    numbers, scale, bias = packed(at.format(part.source), matrix, bias)
    end = epilogue(stage.tail, scale, bias, at.format(part.output), addend)
    at.program.convolution(part.operands(at, stage), part.window, numbers, end)


def _each_by_itself(
    at: Lowering, stage: Stage, addend: Format, part: _Part, weights: Array, bias: Array
) -> None:
    format_ = at.format(part.source)
    own, scale, bias = for_bytes(format_, part.weights(weights), bias)
    taps = np.ascontiguousarray(own.reshape(len(own), -1).T, np.float32)
    end = epilogue(stage.tail, scale, bias, at.format(part.output), addend)
    whole = isinstance(format_, Bytes)
    at.program.depthwise(part.operands(at, stage), part.window, taps, whole, end)
