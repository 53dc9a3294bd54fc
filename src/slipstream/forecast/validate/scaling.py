"""Scaling efficiency: measurements on several devices, compared with those on one device.

The forecast uses the published rate of one device, so that only the scaling is judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.validate.case import PublishedCase
from slipstream.forecast.validate.folds import model_of
from slipstream.forecast.validate.predict import CasePredictor


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Throughput of several devices, divided by that of equally many independent devices.

    Args:
        forecast: Forecast efficiency of devices that are as fast as the published single device.
        measured: Published throughput, divided by the published throughput of the single devices.
    """

    forecast: float
    measured: float


class Singles:
    """Published rates of single devices, in samples per second.

    Args:
        cases: Measurements of a table, on one and on several devices.
    """

    def __init__(self, cases: Iterable[PublishedCase]) -> None:
        self._rates = {
            _alike(case): case.step_samples / case.measured
            for case in cases
            if case.devices == 1 and case.measures == "step"
        }

    def seconds(self, case: PublishedCase) -> float | None:
        """Return how long one device alone takes for its share of a step, or None if unpublished.

        Args:
            case: Measurement on several devices.
        """
        if case.devices == 1 or case.measures != "step":
            return None
        rate = self._rates.get(_alike(case))
        return None if rate is None else case.step_samples / case.devices / rate

    def step(
        self, case: PublishedCase, predictor: CasePredictor, parameters: Parameters
    ) -> float | None:
        """Forecast a step's seconds from the published rate of one device; None if unpublished.

        Args:
            case: Measurement on several devices.
            predictor: Predictor that simulates the step.
            parameters: Calibrated parameters; the published rate of one device replaces the
                forecast rate.
        """
        one = self.seconds(case)
        if one is None:
            return None
        pace = one / predictor.alone(case, parameters).seconds
        return predictor.step(case, parameters, pace).seconds

    def efficiency(
        self, case: PublishedCase, predictor: CasePredictor, parameters: Parameters
    ) -> Efficiency | None:
        """Return the scaling efficiency of a measurement; None if one device's rate is unknown.

        Args:
            case: Measurement on several devices, or a speed-up.
            predictor: Predictor that simulates the step.
            parameters: Calibrated parameters; the published rate of one device replaces the
                forecast rate.
        """
        if case.measures == "speedup":
            speedup = predictor.forecast(case, parameters)
            return Efficiency(speedup / case.devices, case.measured / case.devices)
        one, several = self.seconds(case), self.step(case, predictor, parameters)
        if one is None or several is None:
            return None
        return Efficiency(one / several, one / case.measured)


def _alike(case: PublishedCase) -> tuple[object, ...]:
    """Return a key that is equal for measurements that differ only in the number of devices."""
    strategy = case.strategy
    return (
        case.source, model_of(case), tuple(case.inputs.items()), case.gpu, case.framework,
        case.precision, strategy.micro_batch, case.sharded,
    )  # fmt: skip
