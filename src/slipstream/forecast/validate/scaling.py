"""Efficiency: rows on several devices beside the one on a single device that is the same otherwise.

The rate of a single device is given, as published; what is judged is what several make of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.validate.case import Case
from slipstream.forecast.validate.folds import model_of
from slipstream.forecast.validate.predict import Predictor


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Throughput as a share of so many times the published throughput of one device.

    Args:
        forecast: by a device that is as fast as was published.
        measured: as published.
    """

    forecast: float
    measured: float


class Singles:
    """What one device was measured to do.

    Args:
        cases: of a table, on one and on several devices.
    """

    def __init__(self, cases: Iterable[Case]) -> None:
        self._rates = {
            _alike(case): case.step_samples / case.measured
            for case in cases
            if case.devices == 1 and case.measures == "step"
        }

    def seconds(self, case: Case) -> float | None:
        """Returns what one device takes for its share of a step; None: that was not published.

        Args:
            case: on several devices.
        """
        if case.devices == 1 or case.measures != "step":
            return None
        rate = self._rates.get(_alike(case))
        return None if rate is None else case.step_samples / case.devices / rate

    def step(self, case: Case, predictor: Predictor, parameters: Parameters) -> float | None:
        """Returns the seconds of a step whose devices are as fast as one was; None: as `seconds`.

        Args:
            case: on several devices.
            predictor: that simulates it.
            parameters: for all else.
        """
        one = self.seconds(case)
        if one is None:
            return None
        pace = one / predictor.alone(case, parameters).seconds
        return predictor.step(case, parameters, pace).seconds

    def efficiency(
        self, case: Case, predictor: Predictor, parameters: Parameters
    ) -> Efficiency | None:
        """Returns the efficiency of a case; None: one device's rate was not published.

        Args:
            case: on several devices, or a speed-up.
            predictor: that simulates it.
            parameters: for all else.
        """
        if case.measures == "speedup":
            found = predictor.forecast(case, parameters)
            return Efficiency(found / case.devices, case.measured / case.devices)
        one, several = self.seconds(case), self.step(case, predictor, parameters)
        if one is None or several is None:
            return None
        return Efficiency(one / several, one / case.measured)


def _alike(case: Case) -> tuple[object, ...]:
    """Rows on one and on several devices that are the same otherwise."""
    strategy = case.strategy
    return (
        case.source, model_of(case), tuple(case.inputs.items()), case.gpu, case.framework,
        case.precision, strategy.micro_batch, case.sharded,
    )  # fmt: skip
