"""How numbers of a tensor stand for reals: floats as they are, bytes by a scale and a zero."""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from slipstream import _kernels as kernels
from slipstream.infer.graph import Array

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

        Then, where the processor adds two products of bytes in 16 bits (x86 without VNNI), which
        overflow, to the greatest sum of two of one sign that belong to neighbouring input channels,
        or taps where these end. Other engines multiply with the same instruction.
        """
        rows = np.moveaxis(real, 1, -1).reshape(len(real), -1)
        greatest = np.abs(rows).max(axis=1, initial=0).astype(np.float32)
        if of_bytes and kernels.adds_pairs():
            pairs = np.abs(rows[:, 1:] + rows[:, :-1]).max(axis=1, initial=0)
            greatest = np.maximum(greatest, pairs)
        scale = np.where(greatest > 0, greatest / 127, 1).astype(np.float32)
        shape = (-1,) + (1,) * (real.ndim - 1)
        numbers = np.clip(np.rint(real / scale.reshape(shape)), -127, 127).astype(np.int8)
        return Weights(numbers, scale)
