"""Number formats of tensors in memory: float32, bfloat16, and quantised uint8."""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from slipstream import _kernels as kernels
from slipstream.infer.graph.graph import Array

# Least number of elements of a weight matrix that is stored as int8; a smaller one would save less
# than 3 KiB. Chosen by hand, not measured.
SMALLEST_MATRIX = 1024


@dataclass(frozen=True)
class Bytes:
    """The format uint8 with a scale > 0 and a zero point from 0 to 255.

    A byte stands for the real number scale * (byte - zero).
    """

    scale: float
    zero: int

    @staticmethod
    def of_range(low: float, high: float) -> Bytes:
        """Return the format that covers [low, high] and represents 0 exactly, for padding."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = (high - low) / 255 or 1.0
        return Bytes(scale, round(-low / scale))

    @property
    def range(self) -> tuple[float, float]:
        """Least and greatest real number that a byte can represent."""
        return -self.zero * self.scale, (255 - self.zero) * self.scale


@dataclass(frozen=True)
class BFloat16:
    """The format bfloat16: the upper 16 bits of a float32."""


Format: TypeAlias = "Bytes | BFloat16 | None"  # None means float32


def size_of(format_: Format) -> int:
    """Return the number of bytes that one number in a format takes."""
    if isinstance(format_, Bytes):
        return 1
    return 2 if isinstance(format_, BFloat16) else 4


def number_of(format_: Format) -> kernels.Number:
    """Return the member of the kernels' enumeration that stands for a format."""
    if isinstance(format_, Bytes):
        return kernels.Number.UINT8
    return kernels.Number.BFLOAT16 if isinstance(format_, BFloat16) else kernels.Number.FLOAT32


@dataclass(frozen=True)
class Weights:
    """int8 weights with one scale per output channel (the first axis): real = scale * number."""

    numbers: Array
    scale: Array

    @staticmethod
    def quantise(real: Array, *, of_bytes: bool = True) -> Weights:
        """Quantise weights symmetrically.

        In each output channel, the weight with the largest absolute value becomes 127 or -127.

        On x86 without VNNI, the products of two neighbouring weights with bytes are added in 16
        bits, which can overflow. There, the scale is increased until the sum of two neighbouring
        weights of the same sign is small enough. For faster kernels, this also holds for the sum of
        two such pairs that are four weights apart. Neighbours are weights of consecutive input
        channels. The last channel of a tap (a position in the kernel) is followed by the first
        channel of the next tap. ONNX Runtime and OpenVINO use the same instruction, so their sums
        can overflow, too.

        Args:
            real: Float weights of shape (output channels, input channels, ...taps).
            of_bytes: Whether the weights will be multiplied by quantised inputs (bytes, default
                True) or by float inputs (False). Products with floats cannot overflow.
        """
        last = np.moveaxis(real, 1, -1)
        rows = last.reshape(len(real), -1).astype(np.float32, copy=False)
        numbers, scale = np.empty(rows.shape, np.int8), np.empty(len(rows), np.float32)
        if of_bytes:
            kernels.as_bytes(rows, numbers, scale, np.empty(len(rows), np.int32))
        else:
            greatest = np.abs(rows).max(axis=1, initial=0)
            scale = np.where(greatest > 0, greatest / 127, 1).astype(np.float32)
            numbers = np.rint(rows / scale[:, None]).astype(np.int8)
        return Weights(np.moveaxis(numbers.reshape(last.shape), -1, 1), scale)
