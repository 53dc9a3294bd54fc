"""What the demo's training will take on this machine, before it is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slipstream.bench.forecast.calibrate import calibrate as measure
from slipstream.errors import UnsupportedError
from slipstream.forecast import ForecastOptions, Interval, Plan, forecast
from slipstream.forecast.calibrate import file
from slipstream.tour import example

DEVICE = "rank"

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A forecast of the training.

    Args:
        step: seconds of one step, on all ranks.
        rate: pictures per second of all ranks.
        efficiency: share of so many times what one rank does alone.
        epoch: seconds of the steps of an epoch.
        limit: what most of a step goes to, in words.
    """

    step: Interval
    rate: Interval
    efficiency: Interval
    epoch: Interval
    limit: str


def calibrate(target: Path, *, quick: bool, progress: Progress) -> None:
    """Measures what a rank of one core reaches, and writes it as a file of hardware.

    Args:
        target: file to write.
        quick: some seconds, and numbers that are off.
        progress: told what is measured, how much was and how much there is.
    """
    found = measure(DEVICE, threads=example.THREADS, quick=quick, progress=progress)
    file.write(found, target)


def predict(hardware: Path, *, ranks: int, samples: int, alone: float | None = None) -> Prediction:
    """Forecasts the training; nothing is run.

    Args:
        hardware: file that `calibrate` wrote.
        ranks: of this host.
        samples: of an epoch.
        alone: pictures per second that one rank was seen to train; None: it was not.
    """
    result = forecast(
        f"{example.folder() / 'model.py'}:small_resnet",
        ForecastOptions(
            batch=example.BATCH * ranks,
            shape=example.SHAPE,
            own=f"{ranks}x{DEVICE}",
            hosts=1,
            hardware=str(hardware),
            samples=samples,
            precision="fp32",
            optimizer="momentum",
            alone=None if alone is None else (alone, example.BATCH),
        ),
    )
    plan = next((each for each in result.plans if each.strategy.data == ranks), None)
    if plan is None:
        raise UnsupportedError(
            f"the forecast has no plan of {ranks} ranks that share a batch on this host, as the"
            " demo trains; choose fewer with --ranks"
        )
    return _of(plan, example.BATCH * ranks)


def _of(plan: Plan, batch: int) -> Prediction:
    assert plan.seconds_per_epoch is not None
    step = plan.seconds_per_step
    return Prediction(
        step=step,
        rate=Interval(batch / step.value, batch / step.high, batch / step.low),
        efficiency=plan.efficiency,
        epoch=plan.seconds_per_epoch,
        limit=plan.limit,
    )
