"""What memory of a device is used for, and when most of it is."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import NamedTuple

from slipstream.forecast.memory.allocator import Allocator, Piece


class Use(enum.IntEnum):
    """What a piece of memory is for."""

    PARAMETERS = 0
    GRADIENTS = 1
    STATES = 2
    ACTIVATIONS = 3
    WORKSPACE = 4
    COMMUNICATION = 5


class Stream(enum.IntEnum):
    """What a stream of the device does; memory that one freed, the others do not get."""

    COMPUTE = 0
    GATHER = 1
    SCATTER = 2


class Holding(NamedTuple):
    """Memory that is used; `piece` is the allocator's."""

    use: Use
    piece: Piece


class FullError(Exception):
    """More is held than there is room for."""


class Ledger:
    """An allocator that knows what its pieces are for.

    Args:
        allocator: new.

    `at` says what runs now, and `peak_at` what ran when most was allocated. `room` is the bytes
    that may be held; more raise FullError.
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
        """Bytes of each use when most was allocated."""
        return dict(zip(Use, self._peak, strict=True))

    def take(self, use: Use, num_bytes: int, stream: Stream = Stream.COMPUTE) -> Holding:
        """Allocates memory.

        Args:
            use: what it is for.
            num_bytes: at least 0.
            stream: that asks.
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
        """Frees memory."""
        for holding in holdings:
            self._held[holding.use] -= holding.piece.size
            self.allocator.free(holding.piece)
