"""Forecast of the demo's training on this machine, made before the training."""

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
    """Forecast of the training.

    Args:
        step: Duration of one step on all ranks, in seconds.
        rate: Images per second of all ranks together.
        efficiency: Rate of all ranks divided by the number of ranks and by the rate of a single
            rank.
        epoch: Duration of all steps of an epoch, in seconds.
        limit: Readable name of the part of a step that takes the most time.
    """

    step: Interval
    rate: Interval
    efficiency: Interval
    epoch: Interval
    limit: str


def calibrate(target: Path, *, quick: bool, progress: Progress) -> None:
    """Measure the performance of a rank with one core, and write it to a hardware file.

    Args:
        target: Path of the file to write.
        quick: Whether to measure for some seconds only, which makes the numbers less exact.
        progress: Function that receives the name of the next stage, the number of finished stages
            and the number of all stages.
    """
    calibration = measure(DEVICE, threads=example.THREADS, quick=quick, progress=progress)
    file.write(calibration, target)


def predict(hardware: Path, *, ranks: int, samples: int, alone: float | None = None) -> Prediction:
    """Forecast the training without running it.

    Args:
        hardware: Path of the file that `calibrate` wrote.
        ranks: Number of ranks on this host.
        samples: Number of samples in an epoch.
        alone: Measured images per second of a rank without communication; None if it was not
            measured.
    """
    result = forecast(
        f"{example.folder() / 'model.py'}:small_resnet",
        ForecastOptions(
            batch=example.BATCH * ranks,
            shape=example.SHAPE,
            own=f"{ranks}x{DEVICE}",
            max_hosts=1,
            hardware=str(hardware),
            samples=samples,
            precision="fp32",
            optimizer="momentum",
            alone=None if alone is None else (alone, example.BATCH),
        ),
    )
    plan = next((plan for plan in result.plans if plan.strategy.data == ranks), None)
    if plan is None:
        raise UnsupportedError(
            f"the forecast has no data-parallel plan with {ranks} ranks on this host, as the demo"
            " needs; choose fewer with --ranks"
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
