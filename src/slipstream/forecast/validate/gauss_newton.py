"""Fit of parameters to measurements near a first guess: Gauss-Newton with a prior and outliers.

Each parameter is the logarithm of a factor on its first guess, and has a normal prior around 0.
Residuals are logarithms of forecast over measured values, and outliers count less (Cauchy's loss).
"""
# Pyright loses the types of NumPy arrays in sums and copies.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

# The errors below are means over 411 rows, at most 60 per source; each row is forecast with a fit
# that leaves its source out. These fits were linearised around the shipped parameters. With the
# constants below, the error is 14.1 %.
#
# Standard deviation of residuals. With 0.05 and 0.2 the error is 14.5 and 14.2 %.
RESIDUAL = 0.1
# Weight of rows for which the rate on one device is published too. With 1 and 4 the error is
# 14.1 %; the weight of 2 reduces the mean error of scaling efficiency from 7.6 to 7.5 percentage
# points (docs/forecast.md).
SURER = 2.0
# Number of standard deviations beyond which a residual is an outlier. With 1.5 and 6 the error is
# 13.8 and 14.4 %, and if no residual is an outlier 14.5 %.
OUTLIER = 3.0


def fit_near_guess(
    point: Vector,
    errors_at: Callable[[Vector], Vector],
    slopes: Vector,
    widths: Vector,
    steps: int,
) -> Vector:
    """Return the point that damped Gauss-Newton reaches with fixed slopes.

    Args:
        point: Start: the logarithm of the factor on each parameter.
        errors_at: Function that returns the residuals at a point, in standard deviations.
        slopes: Derivatives of the residuals with respect to the parameters: a row per residual.
        widths: Standard deviation of each parameter as a prior.
        steps: Maximum number of steps.
    """
    prior = np.diag(widths**-2.0)
    errors = errors_at(point)
    for _ in range(steps):
        weights = outlier_weights(errors)
        normal = slopes.T @ (weights[:, None] * slopes) + prior
        change = np.linalg.solve(normal, slopes.T @ (weights * errors) + prior @ point)
        before = _loss(point, errors, widths)
        for damping in (1.0, 0.5, 0.25):
            there = point - damping * change
            errors_there = errors_at(there)
            if _loss(there, errors_there, widths) < before:
                point, errors = there, errors_there
                break
        else:
            break
    return point


def outlier_weights(errors: Vector) -> Vector:
    """Return the weight of each residual, 0 to 1; large residuals have small weights.

    Args:
        errors: Residuals in standard deviations.
    """
    return 1 / (1 + (errors / OUTLIER) ** 2)


def _loss(point: Vector, errors: Vector, widths: Vector) -> float:
    soft = OUTLIER**2 * np.log1p((errors / OUTLIER) ** 2)
    return float(soft.sum() + np.square(point / widths).sum())
