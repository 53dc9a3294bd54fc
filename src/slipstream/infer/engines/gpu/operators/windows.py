"""Sizes of the windows of convolutions and pooling, and padding around their input."""

# PyTorch leaves some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F  # noqa: N812

from slipstream.infer.engines.gpu.operators.node_call import NodeCall


@dataclass(frozen=True)
class WindowSizes:
    """Sizes of a window along each dimension of an image.

    Args:
        kernel: Number of elements in the window.
        strides: Distance between neighbouring windows.
        dilations: Distance between neighbouring elements in the window.
        begins: Padding before the image.
        ends: Padding behind the image.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of dimensions of the image."""
        return len(self.kernel)


def window(call: NodeCall, kernel: Sequence[int]) -> WindowSizes:
    """Return the sizes of the windows of a node."""
    rank = len(kernel)
    strides = call.node.get("strides", [1] * rank)
    dilations = call.node.get("dilations", [1] * rank)
    pads = call.node.get("pads", [0] * 2 * rank)
    automatic = call.node.get("auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        pads = _same(call, kernel, strides, dilations, is_upper=automatic == "SAME_UPPER")
    elif automatic == "VALID":
        pads = [0] * 2 * rank
    elif call.node.op == "ConvTranspose" and call.node.get("output_shape"):
        raise call.refuse("output_shape leaves the padding open")
    begins, ends = tuple(pads[:rank]), tuple(pads[rank:])
    return WindowSizes(tuple(kernel), tuple(strides), tuple(dilations), begins, ends)


def _same(
    call: NodeCall,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    *,
    is_upper: bool,
) -> list[int]:
    """Return the padding with which an image of n pixels has n / stride windows."""
    if call.node.op == "ConvTranspose":
        raise call.refuse("auto_pad leaves the padding open")
    begins: list[int] = []
    ends: list[int] = []
    sizes = zip(call.shape(0)[2:], kernel, strides, dilations, strict=True)
    for length, width, stride, dilation in sizes:
        reach = (width - 1) * dilation + 1
        total = max((-(-length // stride) - 1) * stride + reach - length, 0)
        less, more = total // 2, total - total // 2
        begins.append(less if is_upper else more)
        ends.append(more if is_upper else less)
    return [*begins, *ends]


def padded(call: NodeCall, sizes: WindowSizes, value: float) -> tuple[Any, tuple[int, ...]]:
    """Return an image and the padding that is left to PyTorch, which pads both sides equally."""
    halves = tuple(width // 2 for width in sizes.kernel)  # pooling leaves no more to PyTorch
    is_small = call.node.op == "Conv" or all(map(operator.le, sizes.begins, halves))
    if sizes.begins == sizes.ends and is_small:
        return call.first, sizes.begins
    pairs = zip(reversed(sizes.begins), reversed(sizes.ends), strict=True)
    flat = [number for pair in pairs for number in pair]
    return F.pad(call.first, flat, value=value), (0,) * sizes.rank
