"""Fit of the parameters of a forecast to measurements, near a first guess.

Each parameter is the product of a first guess and a factor; the logarithm of the factor has a
normal prior. Each framework (runtime) has factors of its own, which are multiplied by the factors
of the runtime "usual". A runtime without measurements has only the factors of "usual".

If a publisher measured a training both on one device and on several devices, the forecast for
several devices uses the measured rate of one device. Measurements on several devices thus determine
the parameters of communication; measurements on one device determine those of the device. Residuals
are logarithms of forecast over measured values, and outliers count less (Cauchy's loss). Slopes are
derivatives of residuals with respect to parameters. A fit that leaves measurements out has its own
residuals, but reuses the last slopes of the fit to all measurements.
"""
# Pyright loses the types of NumPy arrays in sums and copies.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from slipstream.forecast.simulate.parameters import USUAL, Parameters
from slipstream.forecast.validate.case import PublishedCase
from slipstream.forecast.validate.gauss_newton import RESIDUAL, SURER, Vector, fit_near_guess
from slipstream.forecast.validate.predict import CasePredictor
from slipstream.forecast.validate.scaling import Singles
from slipstream.forecast.validate.space import FitKnob, Space

Rows = npt.NDArray[np.bool_]

# Change of a parameter's logarithm by which a slope (a finite difference) is computed.
_STEP = 1e-3


class Fit:
    """A fit of parameters to measurements.

    Args:
        cases: Measurements to fit.
        predictor: Predictor that simulates the measurements.
        singles: Published rates of single devices, for the forecasts of several devices.
        guess: First guess of the parameters, including those of all known frameworks.
        progress: Callback that receives the number of completed rounds and the number of all rounds
            (default: none).
    """

    def __init__(
        self,
        cases: Sequence[PublishedCase],
        predictor: CasePredictor,
        singles: Singles,
        guess: Parameters,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._cases = cases
        self._predictor, self._singles = predictor, singles
        self._progress = progress
        met = {case.runtime for case in cases} & set(guess.runtimes)
        self.space = Space(guess, sorted(met - {USUAL}))
        counts = Counter(case.source for case in cases)
        # The weight of a source grows with the square root of its number of rows.
        self._weights = np.array([counts[case.source] ** -0.5 for case in cases])
        self._weights /= self._weights.mean()
        has_rate = np.array([self._singles.seconds(case) is not None for case in cases])
        self._weights[has_rate] *= SURER
        self._widths = np.array([knob.width for knob in self.space.knobs])
        self._slopes: Vector | None = None

    def all(self, rounds: int = 6) -> Vector:
        """Return the point of `space` whose parameters fit all measurements best.

        The call blocks for some seconds per round and per hundred measurements.

        Args:
            rounds: Number of Gauss-Newton rounds (default 6); each round computes new slopes.
        """
        point = np.zeros(len(self.space.knobs))
        every = np.ones(len(self._cases), dtype=np.bool_)
        for done in range(rounds):
            self._progress(done, rounds)
            self._slopes = self._differences(point)
            point = self._solve(point, every, steps=2)
        return point

    def without(self, left_out: Rows, start: Vector) -> Vector:
        """Return the point of `space` that fits best without some measurements; call `all` first.

        Args:
            left_out: Mask that is true for each measurement to leave out.
            start: Point of `space` that fits all measurements.
        """
        return self._solve(start, ~left_out, steps=4)

    def _solve(self, point: Vector, rows: Rows, steps: int) -> Vector:
        """Run damped Gauss-Newton with the stored slopes; large residuals have smaller weights."""
        assert self._slopes is not None
        return fit_near_guess(
            point, lambda there: self._errors(there, rows), self._slopes[rows], self._widths, steps
        )

    def _errors(self, point: Vector, rows: Rows) -> Vector:
        parameters = self.space.parameters(point.tolist())
        errors = [self._error(case, parameters) for case in _chosen(self._cases, rows)]
        return np.array(errors) / RESIDUAL * self._weights[rows]

    def _error(self, case: PublishedCase, parameters: Parameters) -> float:
        paced = self._singles.step(case, self._predictor, parameters)
        forecast = paced or self._predictor.forecast(case, parameters)
        return math.log(forecast / case.measured)

    def _differences(self, point: Vector) -> Vector:
        """Return the slopes of all residuals; a framework's slopes are 0 for other frameworks."""
        every = np.ones(len(self._cases), dtype=np.bool_)
        base = self._errors(point, every)
        slopes = np.zeros((len(self._cases), len(self.space.knobs)))
        for column, knob in enumerate(self.space.knobs):
            moved = point.copy()
            moved[column] += _STEP
            rows = np.array([self._touches(knob, case) for case in self._cases])
            slopes[rows, column] = (self._errors(moved, rows) - base[rows]) / _STEP
        return slopes

    def _touches(self, knob: FitKnob, case: PublishedCase) -> bool:
        return knob.table in ("rates", "wire", USUAL, case.runtime)


def _chosen(cases: Sequence[PublishedCase], rows: Rows) -> list[PublishedCase]:
    return [case for case, is_chosen in zip(cases, rows.tolist(), strict=True) if is_chosen]
