"""Division of the samples into calibration samples, judging samples and held-out samples.

The calibration samples determine the ranges of int8 values. The judging samples show which
candidates are accurate enough. The held-out samples have no part in calibration or in the choice of
a candidate, so the accuracy on them is the accuracy to expect on unseen samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.infer.accuracy.accuracy import ENOUGH
from slipstream.infer.samples import Sample, Samples

# Greatest number of calibration samples. Chosen by hand, not measured.
MOST_CALIBRATION = 64
# Least number of samples that are divided; at least half of them become judging samples.
LEAST = 2 * ENOUGH


@dataclass(frozen=True)
class SampleSubset:
    """A subset of samples.

    Args:
        samples: Samples from which the subset is taken.
        indices: Index in `samples` of each sample of the subset, in the order of the subset.
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
        """Return a subset whose samples come alternately from this subset and from `other`."""
        longest = range(max(len(self), len(other)))
        pairs = (subset.indices[at : at + 1] for at in longest for subset in (self, other))
        return SampleSubset(self.samples, [index for pair in pairs for index in pair])


@dataclass(frozen=True)
class Division:
    """The samples of a search, divided by purpose.

    Args:
        calibration: Samples that determine the ranges of int8 values. The subset is empty if there
            are too few samples to divide; then no int8 candidate is tried.
        judged: Samples on which all candidates are compared with the reference.
        held_out: Samples on which the chosen candidate is compared with the reference at the end.
            The subset is empty if there are too few samples to divide.
    """

    calibration: SampleSubset
    judged: SampleSubset
    held_out: SampleSubset

    @staticmethod
    def of(samples: Samples) -> Division:
        """Divide samples: a quarter for calibration, a quarter held out, and the rest for judging.

        At most 64 samples are for calibration. Fewer than 16 samples are not divided: all of them
        are for judging. The samples are divided at random, because data is often sorted, for
        example by class or by date. The seed is fixed, so the same data is always divided in the
        same way.
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
