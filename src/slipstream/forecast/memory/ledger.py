"""A record of the use of device memory by purpose, and of its peak."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import NamedTuple

from slipstream.forecast.memory.allocator import Allocator, SegmentPiece


class Use(enum.IntEnum):
    """The purpose of a piece of memory."""

    PARAMETERS = 0
    GRADIENTS = 1
    STATES = 2
    ACTIVATIONS = 3
    WORKSPACE = 4
    COMMUNICATION = 5


class MemoryStream(enum.IntEnum):
    """A CUDA stream; memory that one stream frees is never allocated by another stream."""

    COMPUTE = 0
    GATHER = 1
    SCATTER = 2


class Holding(NamedTuple):
    """A piece of device memory that is in use, with its purpose."""

    use: Use
    piece: SegmentPiece


class FullError(Exception):
    """The memory in use exceeds a limit."""


class Ledger:
    """An allocator that records the purpose for which each piece of memory is used.

    Args:
        allocator: Allocator from which nothing has been allocated yet.

    `at` is the name of the running operator, and `peak_at` is the name of the operator that ran at
    the peak. `room` is the maximum memory in use, in bytes (initially no limit); an allocation that
    exceeds it raises FullError.
    """

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.room = math.inf
        self.at = ""
        self.peak_at = ""
        self._held = [0] * len(Use)
        self._peak = self._held
        self._most = 0

    @property
    def peak(self) -> Mapping[Use, int]:
        """Bytes in use at the peak, by purpose."""
        return dict(zip(Use, self._peak, strict=True))

    def take(
        self, use: Use, num_bytes: int, stream: MemoryStream = MemoryStream.COMPUTE
    ) -> Holding:
        """Allocate a piece of memory and record its purpose.

        Args:
            use: Purpose of the memory.
            num_bytes: Requested size, at least 0.
            stream: Stream that makes the request (default COMPUTE).
        """
        piece = self.allocator.allocate(num_bytes, stream)
        self._held[use] += piece.size
        if self.allocator.allocated > self._most:
            self._most = self.allocator.allocated
            self._peak, self.peak_at = self._held.copy(), self.at
            if self._most > self.room:
                raise FullError
        return Holding(use, piece)

    def give(self, *holdings: Holding) -> None:
        """Free memory that `take` returned."""
        for holding in holdings:
            self._held[holding.use] -= holding.piece.size
            self.allocator.free(holding.piece)
