"""Samples divided: some calibrate bytes, some judge candidates, and some are held out to the end.

Those that are held out neither calibrate nor choose, so what is measured on them is what samples
that nobody has seen will have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.infer.accuracy.accuracy import ENOUGH
from slipstream.infer.data import Sample, Samples

MOST_CALIBRATION = 64
LEAST = 2 * ENOUGH  # samples that are divided: half of them judge


@dataclass(frozen=True)
class Chosen:
    """Some of the samples, by their numbers."""

    samples: Samples
    numbers: Sequence[int]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[self.numbers[index]]

    def first(self, count: int) -> Chosen:
        """The first so many of them, or all."""
        return Chosen(self.samples, self.numbers[:count])

    def turns(self, other: Chosen) -> Chosen:
        """Theirs and another's of the same samples by turns."""
        longest = range(max(len(self), len(other)))
        pairs = (each.numbers[at : at + 1] for at in longest for each in (self, other))
        return Chosen(self.samples, [number for pair in pairs for number in pair])


@dataclass(frozen=True)
class Division:
    """Which samples do what.

    Args:
        calibration: those whose values give the ranges of bytes; none where there are too few to
            divide, and then no bytes are tried.
        judged: those that candidates are compared on.
        held_out: those that the chosen one is compared on at the end; none where there are too few.
    """

    calibration: Chosen
    judged: Chosen
    held_out: Chosen

    @staticmethod
    def of(samples: Samples) -> Division:
        """A quarter calibrates, 64 at most, a quarter is held out, and the others judge.

        Data is often in an order (by class, by date), so they are drawn, the same ones each time.
        """
        count = len(samples)
        numbers = np.random.default_rng(0).permutation(count).tolist()
        if count < LEAST:
            return Division(Chosen(samples, ()), Chosen(samples, range(count)), Chosen(samples, ()))
        first, last = min(count // 4, MOST_CALIBRATION), count // 4
        parts = numbers[:first], numbers[first:-last], numbers[-last:]
        calibration, judged, held_out = (Chosen(samples, sorted(part)) for part in parts)
        return Division(calibration, judged, held_out)
