"""Comparison of a candidate's outputs with the outputs of the reference (see `reference`).

The measures are the signal-to-noise ratio, the percentage of equal predictions (predicted classes
and integer outputs), and the top-1 accuracy on labels. For unseen samples, the signal-to-noise
ratio and the top-1 loss have bounds that hold with a confidence of 95 %.
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

EXACT = 200.0  # dB that stand for outputs that are equal bit by bit; float64 cannot resolve more
CONFIDENCE = 0.95  # probability with which a bound holds
# Lower limit of a sample's noise-to-signal ratio in a bound, as a share of the mean ratio. Chosen
# by hand, not measured.
LEAST_RATIO = 0.01
# Least number of samples for an estimate of the variance of the noise. Chosen by hand, not
# measured.
ENOUGH = 8


@dataclass
class Powers:
    """Signal and noise of one group of an output's channels, as a sum of squares per sample.

    Args:
        signal: Sums of the squared reference outputs, one sum per sample.
        noise: Sums of the squared differences from the reference outputs, one sum per sample.
    """

    signal: list[float] = field(default_factory=list[float])
    noise: list[float] = field(default_factory=list[float])

    @property
    def db(self) -> float:
        """Signal-to-noise ratio over all samples, in dB."""
        return _decibels(math.fsum(self.signal), sum(self.noise))

    @property
    def sure_db(self) -> float:
        """Lower 95 % confidence bound of `db` for unseen samples; -200 for fewer than 8 samples."""
        signal, noise = np.array(self.signal), np.array(self.noise)
        if len(noise) < ENOUGH:
            return -EXACT
        total = float(noise.sum())
        if not math.isfinite(total) or total == 0 or not signal.any():
            return self.db
        return _decibels(float(signal.sum()), total * _doubt(signal, noise))


@dataclass
class Comparison:
    """The difference of one candidate's outputs from the reference's, over the samples so far.

    Args:
        yardstick: Division of each output into groups of channels; each group has a signal-to-noise
            ratio of its own (default: each output is one group).
        powers: Signal and noise of each group, by the title of the group.
        samples: Number of samples that were compared.
        labelled: Number of labels of the compared samples.
        right: Number of labels that the candidate predicts correctly.
        reference_right: Number of labels that the reference predicts correctly.
        changed: Number of labels that either the candidate or the reference predicts correctly, but
            not both.
        classes: Distinct labels of the compared samples.
        answers: Number of compared predictions: predicted classes, and numbers of integer outputs.
        same: Number of compared predictions that equal the reference's predictions.
    """

    yardstick: Yardstick = field(default_factory=Yardstick)
    powers: dict[str, Powers] = field(default_factory=dict[str, Powers])
    samples: int = 0
    labelled: int = 0
    right: int = 0
    reference_right: int = 0
    changed: int = 0
    classes: set[int] = field(default_factory=set[int])
    answers: int = 0
    same: int = 0

    def add(
        self,
        outputs: Mapping[str, Array],
        reference: Mapping[str, Array],
        labels: Array | None = None,
    ) -> None:
        """Add the outputs for one sample.

        Args:
            outputs: Outputs by name, of any numeric dtype.
            reference: Outputs of the reference, with the same names and shapes.
            labels: Correct classes, integers of shape (batch,), or None. The predicted class is the
                index of the largest number that the first output has for a batch element.
        """
        self.samples += 1
        for name, expected in reference.items():
            signal, noise = _powers(outputs[name], expected)
            for group in self.yardstick.of_output(name):
                powers = self.powers.setdefault(group.title, Powers())
                powers.signal.append(group.sum(signal))
                powers.noise.append(group.sum(noise))
        for answers, same in self.yardstick.agreements(outputs, reference):
            self.answers += answers
            self.same += same
        if labels is not None:
            first = next(iter(reference))
            right = _are_right(outputs[first], labels)
            reference_right = _are_right(reference[first], labels)
            self.labelled += len(labels)
            self.right += int(right.sum())
            self.reference_right += int(reference_right.sum())
            self.changed += int((right != reference_right).sum())
            self.classes |= set(labels.tolist())

    def together(self, other: Comparison) -> Comparison:
        """Return one comparison over the samples of this comparison and of `other`.

        Both comparisons must have the same `yardstick`.
        """
        both = Comparison(
            self.yardstick,
            samples=self.samples + other.samples,
            labelled=self.labelled + other.labelled,
            right=self.right + other.right,
            reference_right=self.reference_right + other.reference_right,
            changed=self.changed + other.changed,
            classes=self.classes | other.classes,
            answers=self.answers + other.answers,
            same=self.same + other.same,
        )
        for comparison in (self, other):
            for title, powers in comparison.powers.items():
                total = both.powers.setdefault(title, Powers())
                total.signal += powers.signal
                total.noise += powers.noise
        return both

    @property
    def snr_db(self) -> float:
        """Lowest signal-to-noise ratio of any group in dB, -200 to 200.

        The ratio is 200 if all outputs are integers, which have no groups.
        """
        return min((powers.db for powers in self.powers.values()), default=EXACT)

    @property
    def sure_db(self) -> float:
        """Lower 95 % confidence bound of `snr_db` for unseen samples."""
        return min((powers.sure_db for powers in self.powers.values()), default=EXACT)

    @property
    def is_finite_alike(self) -> bool:
        """Whether the outputs are infinite or NaN exactly where the reference's outputs are."""
        return all(math.isfinite(sum(powers.noise)) for powers in self.powers.values())

    @property
    def agreement(self) -> float | None:
        """Percentage of predicted classes and integer outputs that equal the reference's.

        The percentage is None if no output has classes or integers.
        """
        return 100 * self.same / self.answers if self.answers else None

    @property
    def top1_loss(self) -> float | None:
        """Loss of top-1 accuracy in percentage points; None without labels."""
        if self.labelled == 0:
            return None
        return 100 * (self.reference_right - self.right) / self.labelled

    @property
    def most_loss(self) -> float | None:
        """Upper 95 % confidence bound of `top1_loss` for unseen samples; None without labels.

        The bound follows Agresti and Min (2005) for matched proportions, with 1 added to `changed`.
        """
        loss = self.top1_loss
        if loss is None:
            return None
        error = math.sqrt(self.changed + 1) / self.labelled
        return loss + 100 * _quantile(max(self.labelled - 1, 1)) * error

    @property
    def top1(self) -> float | None:
        """Top-1 accuracy of the candidate in percent; None without labels."""
        return 100 * self.right / self.labelled if self.labelled else None

    @property
    def reference_top1(self) -> float | None:
        """Top-1 accuracy of the reference in percent; None without labels."""
        return 100 * self.reference_right / self.labelled if self.labelled else None


def _doubt(signal: Array, noise: Array) -> float:
    """Return the bound of the noise-to-signal ratio on unseen samples, divided by the ratio here.

    The result is the greater of two upper bounds. Student's bound regards the ratio as a quotient
    of two means, and estimates its error from the residuals of the noise (Cochran, Sampling
    Techniques, 6.4). Cox's bound regards the ratios of the samples as log-normal, and bounds the
    mean of their distribution (Zhou and Gao, 1997). Cox's bound uses Kish's effective number of
    samples (1965), because samples differ in signal. If some samples have many times the noise of
    others, Student's bound alone is too low; test_accuracy.py shows this on six distributions.
    """
    count = len(noise)
    quantile = _quantile(count - 1)
    residuals = noise - signal * (noise.sum() / signal.sum())
    spread = math.sqrt(float(np.square(residuals).sum()) / (count - 1))
    student = 1 + quantile * spread / (math.sqrt(count) * float(noise.mean()))
    are_positive = (signal > 0) & (noise > 0)
    if are_positive.sum() < 2:
        return student
    ratios = noise[are_positive] / signal[are_positive]
    # Samples with almost no noise must not widen the bound; some probabilities are exact.
    least = LEAST_RATIO * float(noise.sum() / signal.sum())
    variance = float(np.log(np.maximum(ratios, least)).var(ddof=1))
    counted = float(signal.sum() ** 2 / np.square(signal).sum())
    freedom = max(counted - 1, 1.0)
    error = math.sqrt(variance / counted + variance**2 / (2 * freedom))
    return max(student, math.exp(min(_quantile(freedom) * error, 50.0)))


@cache
def _quantile(freedom: float) -> float:
    """Return the 95 % quantile of Student's t distribution with `freedom` degrees of freedom."""
    from scipy.special import stdtrit  # pyright: ignore[reportMissingTypeStubs]

    return float(stdtrit(freedom, CONFIDENCE))


def _powers(output: Array, expected: Array) -> tuple[Array, Array]:
    """Return a pair of arrays: the squared signal and the squared noise of each element.

    The noise is 0 for an element that is NaN, or the same infinity, in both arrays. If the shapes
    differ, the noise is infinite.
    """
    real = expected.astype(np.float64)
    signal = np.square(np.where(np.isfinite(real), real, 0.0))
    if output.shape != expected.shape:
        return signal, np.full(expected.shape, math.inf)
    other = output.astype(np.float64)
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
