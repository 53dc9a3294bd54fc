"""How far results are from those of the reference: as signal to noise, and in right answers.

What holds for samples that nobody has seen is a bound: the noise that samples of their kind have at
most on average, with a confidence of 95 %.
"""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from slipstream.infer.accuracy.yardstick import Yardstick
from slipstream.infer.graph.graph import Array

EXACT = 200.0  # dB: more than float64 could tell; what equals bit by bit has it
CONFIDENCE = 0.95  # of bounds: so many of all draws of samples have a mean below
LEAST_RATIO = 0.01  # of the mean noise: what has less counts as so much
ENOUGH = 8  # samples that tell how noise differs from one to the next


@dataclass
class Powers:
    """Signal and noise of one group of numbers, sample by sample."""

    signal: list[float] = field(default_factory=list[float])
    noise: list[float] = field(default_factory=list[float])

    @property
    def db(self) -> float:
        """Signal to noise over all samples, in dB."""
        return _decibels(math.fsum(self.signal), sum(self.noise))

    @property
    def sure_db(self) -> float:
        """What `db` is at least over all samples of the kind, as far as these tell; -200 where
        they are too few to tell."""
        signal, noise = np.array(self.signal), np.array(self.noise)
        if len(noise) < ENOUGH:
            return -EXACT
        total = float(noise.sum())
        if not math.isfinite(total) or total == 0 or not signal.any():
            return self.db
        return _decibels(float(signal.sum()), total * _doubt(signal, noise))


@dataclass
class Comparison:
    """What the samples so far say about one candidate beside the reference.

    Args:
        yardstick: which numbers of an output are judged together.
    """

    yardstick: Yardstick = field(default_factory=Yardstick)
    powers: dict[str, Powers] = field(default_factory=dict[str, Powers])
    samples: int = 0
    labelled: int = 0
    right: int = 0
    reference_right: int = 0
    changed: int = 0  # labelled answers that are right in one of the two
    classes: set[int] = field(default_factory=set[int])  # that samples with labels have
    answers: int = 0
    same: int = 0

    def add(
        self,
        outputs: Mapping[str, Array],
        reference: Mapping[str, Array],
        labels: Array | None = None,
    ) -> None:
        """Take the outputs for one input in.

        Args:
            outputs: by name, any dtype that is a number.
            reference: the same names and shapes.
            labels: the right classes, shape (batch,) of integers, where there are any. The answer
                is the largest number along the last axis of the first output.
        """
        self.samples += 1
        for name, right in reference.items():
            signal, noise = _powers(outputs[name], right)
            for group in self.yardstick.of_output(name):
                powers = self.powers.setdefault(group.title, Powers())
                powers.signal.append(group.sum(signal))
                powers.noise.append(group.sum(noise))
        for answers, same in self.yardstick.agreements(outputs, reference):
            self.answers += answers
            self.same += same
        if labels is not None:
            first = next(iter(reference))
            found, right = _are_right(outputs[first], labels), _are_right(reference[first], labels)
            self.labelled += len(labels)
            self.right += int(found.sum())
            self.reference_right += int(right.sum())
            self.changed += int((found != right).sum())
            self.classes |= set(labels.tolist())

    def together(self, other: Comparison) -> Comparison:
        """What both say, which have the same yardstick."""
        found = Comparison(self.yardstick)
        for one in (self, other):
            for title, powers in one.powers.items():
                into = found.powers.setdefault(title, Powers())
                into.signal += powers.signal
                into.noise += powers.noise
        for name in ("samples", "labelled", "right", "reference_right", "changed"):
            setattr(found, name, getattr(self, name) + getattr(other, name))
        found.answers, found.same = self.answers + other.answers, self.same + other.same
        found.classes = self.classes | other.classes
        return found

    @property
    def snr_db(self) -> float:
        """Signal to noise in dB of the group where it is least; -200 to 200, and 200 where all
        outputs are answers."""
        return min((powers.db for powers in self.powers.values()), default=EXACT)

    @property
    def sure_db(self) -> float:
        """What `snr_db` is at least over all samples of the kind, with a confidence of 95 %."""
        return min((powers.sure_db for powers in self.powers.values()), default=EXACT)

    @property
    def is_finite_alike(self) -> bool:
        """Whether outputs are infinite, or no number, only where the reference is so too."""
        return all(math.isfinite(sum(powers.noise)) for powers in self.powers.values())

    @property
    def agreement(self) -> float | None:
        """Percent of the answers that are the reference's; None where no output answers."""
        return 100 * self.same / self.answers if self.answers else None

    @property
    def top1_loss(self) -> float | None:
        """Percentage points of right answers less than the reference has; None without labels."""
        if self.labelled == 0:
            return None
        return 100 * (self.reference_right - self.right) / self.labelled

    @property
    def most_loss(self) -> float | None:
        """What `top1_loss` is at most over all samples of the kind, with a confidence of 95 %: of
        paired answers, one change being added to those seen (Agresti and Min, 2005)."""
        loss = self.top1_loss
        if loss is None:
            return None
        error = math.sqrt(self.changed + 1) / self.labelled
        return loss + 100 * _quantile(max(self.labelled - 1, 1)) * error

    @property
    def top1(self) -> float | None:
        """Percent of right answers; None without labels."""
        return 100 * self.right / self.labelled if self.labelled else None

    @property
    def reference_top1(self) -> float | None:
        """Percent of answers of the reference that are right; None without labels."""
        return 100 * self.reference_right / self.labelled if self.labelled else None


def _doubt(signal: Array, noise: Array) -> float:
    """By how much noise beside signal may be more over all samples than over these.

    The greater of two bounds: Student's for the ratio of two means, by its residuals (Cochran,
    Sampling Techniques, 6.4), and Cox's for a mean of numbers whose logarithms are normal (Zhou and
    Gao, 1997), of as many samples as count where some have more signal (Kish, 1965). Some samples
    have many times the noise of others, and Student's alone is too hopeful then: test_accuracy.py
    draws from six distributions.
    """
    count = len(noise)
    quantile = _quantile(count - 1)
    residuals = noise - signal * (noise.sum() / signal.sum())
    spread = math.sqrt(float(np.square(residuals).sum()) / (count - 1))
    student = 1 + quantile * spread / (math.sqrt(count) * float(noise.mean()))
    both = (signal > 0) & (noise > 0)
    if both.sum() < 2:
        return student
    ratios = noise[both] / signal[both]
    # How far below the mean the least are says nothing of it: of probabilities some are exact.
    least = LEAST_RATIO * float(noise.sum() / signal.sum())
    variance = float(np.log(np.maximum(ratios, least)).var(ddof=1))
    counted = float(signal.sum() ** 2 / np.square(signal).sum())
    freedom = max(counted - 1, 1.0)
    error = math.sqrt(variance / counted + variance**2 / (2 * freedom))
    return max(student, math.exp(min(_quantile(freedom) * error, 50.0)))


@cache
def _quantile(freedom: float) -> float:
    """Standard errors, found with so many degrees of freedom, that a mean is off at most in 95 % of
    all draws."""
    from scipy.special import stdtrit  # pyright: ignore[reportMissingTypeStubs]

    return float(stdtrit(freedom, CONFIDENCE))


def _powers(found: Array, right: Array) -> tuple[Array, Array]:
    """Signal and noise of each number; what is infinite or no number in both alike is neither."""
    real = right.astype(np.float64)
    signal = np.square(np.where(np.isfinite(real), real, 0.0))
    if found.shape != right.shape:
        return signal, np.full(right.shape, math.inf)
    other = found.astype(np.float64)
    same = (real == other) | (np.isnan(real) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        return signal, np.square(np.where(same, 0.0, real - other))


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return EXACT
    if math.isnan(noise) or math.isinf(noise) or signal == 0:
        return -EXACT
    return min(max(10 * math.log10(signal / noise), -EXACT), EXACT)


def _are_right(output: Array, labels: Array) -> Array:
    return output.reshape(len(labels), -1).argmax(axis=1) == labels
