"""Fits the few parameters of a forecast on measurements, held near what they are known to be.

Each parameter is a factor on a first guess; its logarithm has a normal prior. Residuals are logarithms
of forecast over measured, and outliers count less (soft L1).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from slipstream.forecast.parameters import USUAL, Parameters
from slipstream.forecast.validate.table import Case

Vector = npt.NDArray[np.float64]

# How far each may be from its first guess: the standard deviation of its logarithm.
RATES = {
    "matrix": 0.15, "tf32": 0.2, "tf32_windows": 0.2, "vector": 0.1, "memory": 0.1, "half_sum": 0.5, "gap_us": 0.5,
    "winograd": 0.3, "depthwise": 0.5, "gather": 0.7,
}  # fmt: skip
WIRE = {"inside": 0.2, "between": 0.4, "launch_us": 0.5, "half_bytes": 1.0}
RUNTIME = {
    "forward_us": 0.7, "backward_us": 0.7, "collective_us": 0.7, "step_ms": 0.7, "memory": 0.3,
    "compute": 0.15, "overlap": 0.5,
}  # fmt: skip
_RESIDUAL = 0.1
_STEP = 1e-3

Forecast = Callable[[Case, Parameters], float]


@dataclass(frozen=True, slots=True)
class _Knob:
    """A parameter that is fitted: of rates, of the wire, or of a runtime."""

    table: str
    name: str
    width: float


class Fit:
    """A fit on cases.

    Args:
        cases: with what was measured.
        forecast: seconds, or a speed-up, of a case under parameters.
        guess: where it starts; its runtimes are those that are known.
    """

    def __init__(self, cases: Sequence[Case], forecast: Forecast, guess: Parameters) -> None:
        self._cases = cases
        self._forecast = forecast
        self._guess = guess
        met = {case.runtime for case in cases} & set(guess.runtimes)
        names = [USUAL, *sorted(met - {USUAL})]
        self._knobs = [
            *(_Knob("rates", name, width) for name, width in RATES.items()),
            *(_Knob("wire", name, width) for name, width in WIRE.items()),
            *(_Knob(name, key, width) for name in names for key, width in RUNTIME.items()),
        ]
        counts = Counter(case.source for case in cases)
        # A source with many rows counts more than one with few, though not in proportion.
        self._weights = np.array([counts[case.source] ** -0.25 for case in cases])
        self._weights /= self._weights.mean()
        self._touched = [self._rows(knob) for knob in self._knobs]

    def _rows(self, knob: _Knob) -> npt.NDArray[np.int64]:
        """The cases that a knob can change."""
        known = self._guess.runtimes
        return np.array(
            [
                index
                for index, case in enumerate(self._cases)
                if knob.table in ("rates", "wire")
                or (case.runtime if case.runtime in known else USUAL) == knob.table
            ],
            dtype=np.int64,
        )

    def run(self, evaluations: int) -> Parameters:
        """Returns the parameters that fit best. Blocks for some seconds per evaluation.

        Args:
            evaluations: of all cases, at most, beside those for slopes.
        """
        start = np.zeros(len(self._knobs))
        found = least_squares(
            self._residuals, start, jac=self._slopes, loss="soft_l1", f_scale=1.0,
            max_nfev=evaluations, x_scale=[knob.width for knob in self._knobs],
        )  # fmt: skip
        return self._parameters(found.x)

    def _parameters(self, point: Vector) -> Parameters:
        factors: dict[str, dict[str, float]] = {}
        for knob, value in zip(self._knobs, point, strict=True):
            factors.setdefault(knob.table, {})[knob.name] = math.exp(value)
        guess = self._guess
        runtimes = {
            name: _scaled(runtime, factors.get(name, {}))
            for name, runtime in guess.runtimes.items()
        }
        return Parameters(
            rates=_scaled(guess.rates, factors["rates"]),
            wire=_scaled(guess.wire, factors["wire"]),
            runtimes=runtimes,
        )

    def _errors(self, parameters: Parameters, rows: npt.NDArray[np.int64]) -> Vector:
        errors = [
            math.log(self._forecast(self._cases[row], parameters) / self._cases[row].measured)
            for row in rows
        ]
        return np.array(errors) / _RESIDUAL * self._weights[rows]

    def _residuals(self, point: Vector) -> Vector:
        errors = self._errors(self._parameters(point), np.arange(len(self._cases)))
        widths = np.array([knob.width for knob in self._knobs])
        self._last = errors
        return np.concatenate([errors, point / widths])

    def _slopes(self, point: Vector) -> Vector:
        """Slopes of all residuals; a runtime's knobs touch its own rows only."""
        count = len(self._cases)
        slopes = np.zeros((count + len(self._knobs), len(self._knobs)))
        base = self._errors(self._parameters(point), np.arange(count))
        for column, (knob, rows) in enumerate(zip(self._knobs, self._touched, strict=True)):
            moved = point.copy()
            moved[column] += _STEP
            if len(rows):
                errors = self._errors(self._parameters(moved), rows)
                slopes[rows, column] = (errors - base[rows]) / _STEP
            slopes[count + column, column] = 1 / knob.width
        return slopes


def _scaled(table: object, factors: dict[str, float]) -> object:
    """A table with some of its numbers multiplied; shares stay below 1."""
    shares = {"overlap", "inside", "between", "matrix", "tf32", "tf32_windows", "vector"}
    changes = {
        field.name: min(1.0, getattr(table, field.name) * factors[field.name])
        if field.name in shares
        else getattr(table, field.name) * factors[field.name]
        for field in fields(table)  # type: ignore[arg-type]
        if field.name in factors
    }
    return replace(table, **changes)  # type: ignore[type-var]
