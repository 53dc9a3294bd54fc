"""Pooling with a given number of windows; the last window may extend beyond the padding."""

# NumPy's stubs do not state all types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from slipstream.infer.importers.builder import Builder

Kind = Literal["max", "mean", "sum"]


@dataclass(frozen=True)
class Windows:
    """Windows of a pooling layer. Each list has one entry for every pooled axis.

    Args:
        kernel: Size of a window along each axis, in elements.
        strides: Distance from one window to the next along each axis, in elements.
        pads: Padding at the beginning of each axis, in elements. If averages include padding, they
            include the same number of padding elements at the end of each axis.
        counts: Number of windows along each axis.
    """

    kernel: list[int]
    strides: list[int]
    pads: list[int]
    counts: list[int]

    def ends(self, sizes: Sequence[int]) -> list[int]:
        """Return the padding that the last window needs at the end of each axis, in elements.

        Args:
            sizes: Length of each axis, in elements.
        """
        return [
            max((count - 1) * stride + window - size - pad, 0)
            for count, stride, window, size, pad in zip(
                self.counts, self.strides, self.kernel, sizes, self.pads, strict=True
            )
        ]


def pool(
    builder: Builder, x: str, windows: Windows, kind: Kind, *, with_padding: bool = True
) -> str:
    """Pool a value of the shape (batch, channels, ...).

    Args:
        windows: Windows along the axes after the channels.
        kind: Function that reduces each window to one number.
        with_padding: Whether averages include the padding `windows.pads` (default True). Averages
            never include the part of a window that lies beyond this padding.
    """
    sizes = builder.shape(x)[2:]
    ends = windows.ends(sizes)
    attributes = {
        "kernel_shape": windows.kernel,
        "strides": windows.strides,
        "pads": [*windows.pads, *ends],
    }
    if kind == "max":
        return builder.add("MaxPool", x, **attributes)
    if kind == "mean" and not (with_padding and any(windows.pads)):
        return builder.add("AveragePool", x, count_include_pad=0, **attributes)
    result = builder.add("AveragePool", x, count_include_pad=1, **attributes)
    if kind == "sum":
        area = builder.constant("area", float(np.prod(windows.kernel)))
        return builder.add("Mul", result, area)
    for axis, size in enumerate(sizes):
        if ends[axis] <= windows.pads[axis]:
            continue
        kernel = windows.kernel[axis]
        begins = np.arange(windows.counts[axis]) * windows.strides[axis]
        factors = kernel / np.minimum(kernel, size + 2 * windows.pads[axis] - begins)
        shape = (-1, *(1 for _ in sizes[axis + 1 :]))
        result = builder.add("Mul", result, builder.constant("inside", factors.reshape(shape)))
    return result
