"""How numbers of a tensor stand for reals: floats as they are, bytes by a scale and a zero."""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from slipstream import _kernels as kernels
from slipstream.infer.graph.graph import Array

SMALLEST_MATRIX = 1024  # elements of weights: bytes in place of floats save nothing below


@dataclass(frozen=True)
class Bytes:
    """real = scale * (byte - zero); scale > 0, zero in [0, 255]."""

    scale: float
    zero: int

    @staticmethod
    def of_range(low: float, high: float) -> Bytes:
        """The format that covers [low, high] and has an exact 0, as padding needs."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = (high - low) / 255 or 1.0
        return Bytes(scale, round(-low / scale))

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest real."""
        return -self.zero * self.scale, (255 - self.zero) * self.scale


@dataclass(frozen=True)
class BFloat16:
    """The upper half of a float32."""


Format: TypeAlias = "Bytes | BFloat16 | None"  # None: float32


def size_of(format_: Format) -> int:
    """Bytes of one number."""
    if isinstance(format_, Bytes):
        return 1
    return 2 if isinstance(format_, BFloat16) else 4


@dataclass(frozen=True)
class Weights:
    """int8 weights, one scale per output channel (the first axis): real = scale * number."""

    numbers: Array
    scale: Array

    @staticmethod
    def quantise(real: Array, *, of_bytes: bool = True) -> Weights:
        """Symmetric, to the greatest of each channel; `real` is (output channels, input channels)
        and perhaps taps. `of_bytes`: what they multiply is bytes as well.

        Then, where the processor adds products of bytes in 16 bits (x86 without VNNI), which
        overflow, to the greatest sums of one sign of two and four that belong to neighbouring input
        channels, or taps where these end. Other engines multiply with the same instruction.
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
