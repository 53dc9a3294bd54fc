"""How far results are from those of the reference: as signal to noise, and in right answers."""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from slipstream.infer.graph import Array

EXACT = 200.0  # dB: more than float64 could tell; what equals bit by bit has it
SURE = 1.645  # standard errors above what is measured; 95 % of all means are below, if normal
ENOUGH = 8  # samples that tell how noise differs from one to the next


@dataclass
class Comparison:
    """Sums over the samples so far, of one candidate beside the reference."""

    signal: dict[str, float] = field(default_factory=dict[str, float])
    noise: dict[str, float] = field(default_factory=dict[str, float])
    squares: dict[str, float] = field(default_factory=dict[str, float])  # of samples' noise
    samples: int = 0
    labelled: int = 0
    right: int = 0
    reference_right: int = 0

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
            self.signal[name] = self.signal.get(name, 0.0) + signal
            self.noise[name] = self.noise.get(name, 0.0) + noise
            self.squares[name] = self.squares.get(name, 0.0) + noise * noise
        if labels is not None:
            first = next(iter(reference))
            self.labelled += len(labels)
            self.right += _num_right(outputs[first], labels)
            self.reference_right += _num_right(reference[first], labels)

    @property
    def snr_db(self) -> float:
        """Signal to noise in dB of the output where it is least; -200 to 200."""
        return min(_decibels(self.signal[name], self.noise[name]) for name in self.signal)

    @property
    def sure_db(self) -> float:
        """What `snr_db` is at least over all samples of the kind, as far as these tell; the same
        where they are too few to tell."""
        if self.samples < ENOUGH:
            return self.snr_db
        return min(
            _decibels(self.signal[name], self.noise[name] + SURE * self._error(name))
            for name in self.signal
        )

    def _error(self, name: str) -> float:
        """The standard error of a sum of noise."""
        mean = self.noise[name] / self.samples
        if not math.isfinite(mean):
            return 0.0
        spread = max(self.squares[name] / self.samples - mean * mean, 0.0)
        return self.samples * math.sqrt(spread / (self.samples - 1))

    @property
    def top1_loss(self) -> float | None:
        """Percentage points of right answers less than the reference has; None without labels."""
        if self.labelled == 0:
            return None
        return 100 * (self.reference_right - self.right) / self.labelled


def _powers(found: Array, right: Array) -> tuple[float, float]:
    """Of signal and noise; what is infinite or no number in both alike is neither."""
    if found.shape != right.shape:
        return float(np.square(right, dtype=np.float64).sum()), math.inf
    real, other = right.astype(np.float64), found.astype(np.float64)
    same = (real == other) | (np.isnan(real) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        noise = np.square(np.where(same, 0.0, real - other)).sum()
    return float(np.square(real[np.isfinite(real)]).sum()), float(noise)


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return EXACT
    if math.isnan(noise) or math.isinf(noise) or signal == 0:
        return -EXACT
    return min(max(10 * math.log10(signal / noise), -EXACT), EXACT)


def _num_right(output: Array, labels: Array) -> int:
    answers = output.reshape(len(labels), -1).argmax(axis=1)
    return int((answers == labels).sum())
