"""The division of samples: some calibrate bytes, some judge candidates, some are held out.

The held-out samples neither calibrate nor choose, so the accuracy on them is the accuracy to expect
on unseen samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.infer.accuracy.accuracy import ENOUGH
from slipstream.infer.samples import Sample, Samples

MOST_CALIBRATION = 64  # samples. Chosen by hand, not measured.
LEAST = 2 * ENOUGH  # samples to divide; half of them judge


@dataclass(frozen=True)
class SampleSubset:
    """A subset of samples.

    Args:
        samples: All samples.
        indices: Indices of the subset's samples, in its order.
    """

    samples: Samples
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[self.indices[index]]

    def first(self, count: int) -> SampleSubset:
        """Return the first `count` samples, or all if there are fewer."""
        return SampleSubset(self.samples, self.indices[:count])

    def turns(self, other: SampleSubset) -> SampleSubset:
        """Return the samples of this and of another subset in turn."""
        longest = range(max(len(self), len(other)))
        pairs = (subset.indices[at : at + 1] for at in longest for subset in (self, other))
        return SampleSubset(self.samples, [index for pair in pairs for index in pair])


@dataclass(frozen=True)
class Division:
    """Samples by their purpose.

    Args:
        calibration: Samples that give the ranges of bytes; empty if there are too few samples to
            divide, and then no bytes are tried.
        judged: Samples on which all candidates are compared.
        held_out: Samples on which the chosen candidate is compared at the end; empty if there are
            too few samples to divide.
    """

    calibration: SampleSubset
    judged: SampleSubset
    held_out: SampleSubset

    @staticmethod
    def of(samples: Samples) -> Division:
        """Divide samples: a quarter calibrates, 64 at most, a quarter is held out, the rest judge.

        The samples are drawn at random, always in the same way, because data is often in an order,
        such as by class or by date.
        """
        count = len(samples)
        if count < LEAST:
            none = SampleSubset(samples, ())
            return Division(none, SampleSubset(samples, range(count)), none)
        indices = np.random.default_rng(0).permutation(count).tolist()
        first, last = min(count // 4, MOST_CALIBRATION), count // 4
        parts = indices[:first], indices[first:-last], indices[-last:]
        calibration, judged, held_out = (SampleSubset(samples, sorted(part)) for part in parts)
        return Division(calibration, judged, held_out)
