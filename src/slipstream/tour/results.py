"""Results of the tour: forecasts, measurements and comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slipstream.forecast import Interval
from slipstream.forecast.report.terminal import scaled
from slipstream.infer.package.report import Report
from slipstream.tour.prediction import Prediction
from slipstream.tour.serving import Answered
from slipstream.tour.training import Trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A quantity with two forecasts and a measurement.

    Args:
        name: Readable name of the quantity.
        unit: Unit of the quantity: "s", "1/s" for images per second, or "" for a share.
        kernels: Forecast from the measured speed of this machine's kernels.
        steps: Forecast from the speed of the kernels and from measured steps without communication.
        measured: Value that was measured during the training.
    """

    name: str
    unit: str
    kernels: Interval
    steps: Interval
    measured: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasts:
    """The two forecasts of the training.

    Args:
        ranks: Number of ranks in the training.
        epochs: Number of epochs in the training.
        alone: Images per second of a rank while all ranks train without communication.
        kernels: Forecast from the measured speed of this machine's kernels.
        steps: Forecast from the speed of the kernels and from `alone`.
    """

    ranks: int
    epochs: int
    alone: float
    kernels: Prediction
    steps: Prediction

    def seconds(self, prediction: Prediction) -> Interval:
        """Return the duration in seconds of all training steps, from one of the two forecasts."""
        return scaled(prediction.epoch, self.epochs)

    def beside(self, trained: Trained) -> Iterator[Compared]:
        """Yield the quantities that were both forecast and measured."""
        efficiency = trained.rate / (self.ranks * self.alone)
        quantities = (
            ("a step", "s", trained.step),
            ("images/s", "1/s", trained.rate),
            ("efficiency", "", efficiency),
            ("all steps", "s", trained.seconds),
        )
        forecasts = self._numbers(self.kernels), self._numbers(self.steps)
        for (name, unit, measured), kernels, steps in zip(quantities, *forecasts, strict=True):
            yield Compared(name=name, unit=unit, kernels=kernels, steps=steps, measured=measured)

    def _numbers(self, prediction: Prediction) -> tuple[Interval, ...]:
        seconds = self.seconds(prediction)
        return prediction.step, prediction.rate, prediction.efficiency, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Toured:
    """Results of the whole tour.

    Args:
        forecasts: Forecasts of the training.
        trained: Results of the training.
        report: Report of the compilation.
        package: Path of the compiled model's file.
        answered: Answers of the server.
        seconds: Duration of the tour in seconds.
    """

    forecasts: Forecasts
    trained: Trained
    report: Report
    package: Path
    answered: Answered
    seconds: float


def as_json(toured: Toured) -> dict[str, Any]:
    """Return the results as JSON-compatible data: seconds, images per second, shares (0 to 1)."""
    chosen, answered = toured.report.chosen, toured.answered
    return {
        "ranks": toured.forecasts.ranks,
        "epochs": toured.forecasts.epochs,
        "alone": toured.forecasts.alone,
        "forecast": [asdict(quantity) for quantity in toured.forecasts.beside(toured.trained)],
        "trained": {**asdict(toured.trained), "checkpoint": str(toured.trained.checkpoint)},
        "compiled": {
            "package": str(toured.package),
            "engine": chosen.engine,
            "precision": chosen.precision,
            "ms": chosen.median_ms,
            "top1_loss": chosen.top1_loss,
        },
        "served": {
            "asked": answered.asked,
            "right": answered.right,
            "ms": answered.middle_ms,
            "label": answered.label,
            "likeliest": [list(pair) for pair in answered.likeliest],
        },
        "seconds": toured.seconds,
    }
