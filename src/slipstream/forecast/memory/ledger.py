"""What memory of a device is used for, and when most of it is."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.forecast.memory.allocator import Allocator, Piece


class Use(enum.Enum):
    """What a piece of memory is for."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    STATES = "states"
    ACTIVATIONS = "activations"
    WORKSPACE = "workspace"
    COMMUNICATION = "communication"


class Stream(enum.Enum):
    """What a stream of the device does; memory that one freed, the others do not get."""

    COMPUTE = 0
    GATHER = 1
    SCATTER = 2


@dataclass(frozen=True, slots=True)
class Holding:
    """Memory that is used; `piece` is the allocator's."""

    use: Use
    piece: Piece


class Ledger:
    """An allocator that knows what its pieces are for.

    Args:
        allocator: new.

    `at` says what runs now; `peak` is what each use had in bytes when most was allocated, and
    `peak_at` what ran then.
    """

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.at = ""
        self.peak_at = ""
        self.peak: Mapping[Use, int] = {}
        self._held: Counter[Use] = Counter()
        self._most = 0

    def take(self, use: Use, num_bytes: int, stream: Stream = Stream.COMPUTE) -> Holding:
        """Allocates memory.

        Args:
            use: what it is for.
            num_bytes: at least 0.
            stream: that asks.
        """
        piece = self.allocator.allocate(num_bytes, stream.value)
        self._held[use] += piece.size
        if self.allocator.allocated > self._most:
            self._most = self.allocator.allocated
            self.peak, self.peak_at = dict(self._held), self.at
        return Holding(use, piece)

    def give(self, *holdings: Holding) -> None:
        """Frees memory."""
        for holding in holdings:
            self._held[holding.use] -= holding.piece.size
            self.allocator.free(holding.piece)
