"""Corrections of forecasts by earlier runs of the same kind.

The logarithm of measured over forecast seconds is the sum of a part that all runs of a kind share
and a part of their setup (hosts, batch, network). Both have normal priors. Their widths are those
of the intervals: the errors on measurements whose source was left out of the fit. The fit is that
of the shipped parameters (`validate.gauss_newton`), so one observation does not move a forecast all
the way, and one that contradicts the others counts less.
"""
# Pyright loses the types of NumPy arrays in sums and copies.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slipstream.forecast.observed.file import RunObservation
from slipstream.forecast.observed.kind import RunKind, RunSetup
from slipstream.forecast.validate.gauss_newton import (
    RESIDUAL,
    SURER,
    Vector,
    fit_near_guess,
    outlier_weights,
)

# Standard deviation of a user's own measurement, which counts like the published rows of which more
# than one rate is known.
_OWN = RESIDUAL / SURER
# Half of the width of the interval that has 80 % of a normal distribution, in standard deviations.
_EIGHT_IN_TEN = 1.2816
# Maximum number of steps of a fit; it ends when the loss no longer decreases.
_STEPS = 100


@dataclass(frozen=True, slots=True)
class Correction:
    """The correction of one forecast.

    Args:
        factor: Factor on seconds (default 1).
        narrowing: Factor on the logarithm of the interval's bounds, 0 to 1 (default 1).
        observations: Number of earlier runs of this kind (default 0).
        outdated: Number of further runs that are of this kind but for the parameters and tables
            with which they were forecast; these runs are not used (default 0).
    """

    factor: float = 1.0
    narrowing: float = 1.0
    observations: int = 0
    outdated: int = 0

    def seconds(self, value: float, bound: float) -> float:
        """Return the corrected bound of an interval; with `bound` = `value`, the corrected value.

        Args:
            value: Forecast seconds without the correction.
            bound: Lower or upper bound of its interval.
        """
        return value * self.factor * (bound / value) ** self.narrowing


@dataclass(frozen=True, slots=True)
class PriorWidths:
    """Standard deviations of the logarithm of measured over forecast seconds, as a prior.

    Args:
        kind: Part that all runs of a kind share.
        setup: Part of a setup.
    """

    kind: float
    setup: float


def width_of(low: float, high: float) -> float:
    """Return the standard deviation of a logarithm from the bounds that have eight in ten values.

    Args:
        low: Lower factor.
        high: Upper factor.
    """
    return math.log(high / low) / 2 / _EIGHT_IN_TEN


def correction(
    observations: Sequence[RunObservation], kind: RunKind, setup: RunSetup, widths: PriorWidths
) -> Correction:
    """Return the correction of a forecast by the observations of its kind.

    Args:
        observations: Observations of any kinds.
        kind: Kind of the forecast training.
        setup: Setup of the forecast training.
        widths: Standard deviations of the prior.
    """
    alike = [found for found in observations if found.kind == kind]
    outdated = sum(_is_outdated(found.kind, kind) for found in observations)
    if not alike:
        return Correction(outdated=outdated)
    setups = list(dict.fromkeys([setup, *(found.setup for found in alike)]))
    slopes = np.zeros((len(alike), 1 + len(setups)))
    slopes[:, 0] = 1.0
    for row, found in enumerate(alike):
        slopes[row, 1 + setups.index(found.setup)] = 1.0
    slopes /= _OWN
    prior = np.array([widths.kind] + [widths.setup] * len(setups))
    logs = np.log([found.forecast_seconds / found.measured_seconds for found in alike]) / _OWN

    def errors_at(point: Vector) -> Vector:
        return logs + slopes @ point

    point = fit_near_guess(np.zeros(len(prior)), errors_at, slopes, prior, _STEPS)
    weights = outlier_weights(errors_at(point))
    covariance = np.linalg.inv(slopes.T @ (weights[:, None] * slopes) + np.diag(prior**-2.0))
    left = float(covariance[:2, :2].sum()) + _OWN**2
    before = widths.kind**2 + widths.setup**2 + _OWN**2
    return Correction(
        factor=math.exp(float(point[0] + point[1])),
        narrowing=min(1.0, math.sqrt(left / before)),
        observations=len(alike),
        outdated=outdated,
    )


def _is_outdated(kind: RunKind, now: RunKind) -> bool:
    return kind != now and replace(kind, tables=now.tables) == now
