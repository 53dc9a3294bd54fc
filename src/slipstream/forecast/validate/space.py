"""The space of fitted parameters: their names, their priors, and the meaning of a point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from slipstream.forecast.simulate.compute import Rates, Runtime
from slipstream.forecast.simulate.network import WireRates
from slipstream.forecast.simulate.parameters import USUAL, Parameters

# Standard deviation of each parameter's logarithm around the first guess, as a prior. On the rows
# that fit.py describes, the mean error is 14.1 % with these deviations. It is 14.1 % if all of them
# are multiplied by 0.5, 14.0 % with 0.7 and 15.0 % with 2.
RATES = {
    "matrix": 0.15, "tf32": 0.2, "vector": 0.1, "matrix_windows": 0.1,
    "vector_windows": 0.1, "memory": 0.1, "half_sum": 0.5, "gap_us": 0.5, "winograd": 0.3,
    "depthwise": 0.5, "gather": 0.5,
}  # fmt: skip
WIRE = {"inside": 0.2, "between": 0.4, "launch_us": 0.5, "ramp_us": 1.0}
RUNTIME = {
    "forward_us": 0.7, "backward_us": 0.7, "collective_us": 0.7, "step_ms": 0.7, "memory": 0.3,
    "compute": 0.15, "overlap": 0.3, "spread": 0.7,
}  # fmt: skip
SHARES = {
    "overlap", "inside", "between", "matrix", "tf32", "vector", "matrix_windows",
    "vector_windows", "memory of Rates",
}  # fmt: skip
_T = TypeVar("_T", Rates, WireRates, Runtime)


@dataclass(frozen=True, slots=True)
class FitKnob:
    """A fitted parameter.

    Args:
        table: Field of `Parameters` with the parameter: "rates" (of devices), "wire" (rates of
            links), or the name of a framework (runtime).
        name: Name of the parameter in that field.
        width: Standard deviation of the parameter's logarithm.
    """

    table: str
    name: str
    width: float


class Space:
    """Space of parameters, in which a point lists the logarithms of factors on a first guess.

    Args:
        guess: First guess of the parameters, including those of all known frameworks.
        runtimes: Names of the frameworks (runtimes) with fitted parameters of their own, in
            addition to "usual".
    """

    def __init__(self, guess: Parameters, runtimes: Sequence[str]) -> None:
        self.guess = guess
        self.runtimes = tuple(runtimes)
        self.knobs = [
            *(FitKnob("rates", name, width) for name, width in RATES.items()),
            *(FitKnob("wire", name, width) for name, width in WIRE.items()),
            *(
                FitKnob(name, key, width)
                for name in (USUAL, *runtimes)
                for key, width in RUNTIME.items()
            ),
        ]

    def parameters(self, point: Sequence[float]) -> Parameters:
        """Return the parameters at a point.

        Args:
            point: Logarithms of the factors on the fitted parameters, in the order of `knobs`.
        """
        logs: dict[str, dict[str, float]] = {}
        for knob, value in zip(self.knobs, point, strict=True):
            logs.setdefault(knob.table, {})[knob.name] = value
        usual = logs[USUAL]
        return Parameters(
            rates=_scaled(self.guess.rates, logs["rates"]),
            wire=_scaled(self.guess.wire, logs["wire"]),
            runtimes={
                name: _scaled(
                    runtime, _together(usual, logs.get(name, {}) if name != USUAL else {})
                )
                for name, runtime in self.guess.runtimes.items()
            },
        )


def _together(usual: dict[str, float], of_runtime: dict[str, float]) -> dict[str, float]:
    return {name: value + of_runtime.get(name, 0.0) for name, value in usual.items()}


def _scaled(table: _T, logs: dict[str, float]) -> _T:
    """Multiply parameters by factors with the given logarithms; shares stay at most 1."""
    changes: dict[str, float] = {}
    for name, value in logs.items():
        changed = getattr(table, name) * math.exp(value)
        is_share = name in SHARES or f"{name} of {type(table).__name__}" in SHARES
        changes[name] = min(1.0, changed) if is_share else changed
    return replace(table, **changes)
