"""Fit of the overhead of PyTorch 2 to steps that `slipstream forecast check` measured.

Published tables do not suffice to fit this overhead: the tables do not describe the hosts of the
GPUs, and all rows with PyTorch 2 use FSDP.
"""

# SciPy has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares  # pyright: ignore[reportMissingTypeStubs]

from slipstream.errors import ConfigError, reason_of
from slipstream.forecast import hardware
from slipstream.forecast.search import machines
from slipstream.forecast.simulate.compute import Runtime
from slipstream.forecast.simulate.job import Precision, TrainingJob
from slipstream.forecast.simulate.network import Cluster
from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.simulate.simulation import Simulation
from slipstream.forecast.trace.sources import source
from slipstream.forecast.work.resize import resizable
from slipstream.forecast.work.strategy import Optimizer, Strategy

# Fitted factors, each with the standard deviation of its logarithm around 0 (a factor of 1) as a
# prior. If each row of benchmarks/forecast/h100.csv is forecast with a fit that leaves its model
# out, the mean error is 9.1 %. It is 12.2 % with half of these deviations and 16.8 % with twice
# these deviations.
KNOBS = {
    "memory": 0.3, "compute": 0.15, "depthwise": 0.5, "batch_norm": 0.4, "half_batch_norm": 0.4,
}  # fmt: skip
# Standard deviation of the logarithm of forecast over measured seconds. Doubling it has the same
# effect as halving the deviations above. With this value, the mean error is 9.1 %.
_SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class CheckedStep:
    """A measured step of one device.

    Args:
        model: Name of the architecture.
        batch: Number of samples that the device processes at once.
        precision: Precision of matrix products.
        optimizer: Optimizer of the parameters.
        seconds: Duration of the step in seconds.
    """

    model: str
    batch: int
    precision: Precision
    optimizer: Optimizer
    seconds: float


def read(path: Path) -> list[CheckedStep]:
    """Read measured steps from a file.

    Args:
        path: Location of a .csv file with the columns model, batch, precision, optimizer and
            milliseconds; lines that begin with "#" are skipped.

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = csv.DictReader(line for line in lines if not line.startswith("#"))
        return [_checked(row) for row in rows]
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as measured steps: {reason_of(error)}") from error


def _checked(row: dict[str, str]) -> CheckedStep:
    if row["precision"] not in get_args(Precision):
        raise ValueError(
            f"precision is {row['precision']!r}; allowed are {', '.join(get_args(Precision))}"
        )
    precision = cast("Precision", row["precision"])
    optimizer = Optimizer[row["optimizer"].upper()]
    seconds = float(row["milliseconds"]) / 1e3
    return CheckedStep(row["model"], int(row["batch"]), precision, optimizer, seconds)


def forecast(row: CheckedStep, device: str, parameters: Parameters, runtime: Runtime) -> float:
    """Return the forecast duration of a step in seconds.

    The call blocks for seconds if the model was not traced before.

    Args:
        row: Measured step.
        device: Name of the device that ran the step.
        parameters: Calibrated rates of devices and links.
        runtime: Calibrated overhead of the framework.
    """
    simulation = _simulation(row.model, row.batch, row.precision)
    job = TrainingJob(
        workload=simulation.workload,
        strategy=Strategy(micro_batch=row.batch),
        cluster=_cluster(device),
        precision=row.precision,
        optimizer=row.optimizer,
        runtime=runtime,
        rates=parameters.rates,
        wire=parameters.wire,
    )
    return simulation.run(job).seconds


@cache
def _cluster(device: str) -> Cluster:
    return machines.own(hardware.load(), device, 1, None, None).cluster


@cache
def _simulation(model: str, batch: int, precision: Precision) -> Simulation:
    named = source(model)
    traced = resizable(partial(named.trace, precision=precision, whole=named.whole(precision)))
    return Simulation.of(traced.at(batch))


def fit(
    rows: Sequence[CheckedStep], device: str, parameters: Parameters, guess: Runtime
) -> Runtime:
    """Fit the overhead of the framework to measured steps.

    The fit minimises the squared logarithms of forecast over measured seconds, and keeps the fitted
    factors near 1.

    Args:
        rows: Measured steps.
        device: Name of the device that ran the steps.
        parameters: Calibrated rates, which the fit does not change.
        guess: First guess of the overhead; the fit does not change its times of the host.
    """

    def residuals(point: npt.NDArray[np.float64]) -> list[float]:
        runtime = _at(guess, point)
        off = [forecast(row, device, parameters, runtime) / row.seconds for row in rows]
        prior = point / np.array(list(KNOBS.values()))
        return [*(np.log(off) / _SPREAD).tolist(), *prior.tolist()]

    start: Any = np.zeros(len(KNOBS))
    solution: Any = least_squares(residuals, start, diff_step=1e-3)
    return _at(guess, cast("npt.NDArray[np.float64]", solution.x))


def _at(guess: Runtime, point: npt.NDArray[np.float64]) -> Runtime:
    return replace(guess, **dict(zip(KNOBS, np.exp(point).tolist(), strict=True)))


def errors(
    rows: Sequence[CheckedStep], device: str, parameters: Parameters, guess: Runtime
) -> list[float]:
    """Return the relative error of each step's forecast after a fit without the step's model.

    Args:
        rows: Measured steps.
        device: Name of the device that ran the steps.
        parameters: Calibrated rates, which the fit does not change.
        guess: First guess of the overhead, from which `fit` starts.
    """
    models = {row.model for row in rows}
    without = {
        model: fit([row for row in rows if row.model != model], device, parameters, guess)
        for model in models
    }
    return [forecast(row, device, parameters, without[row.model]) / row.seconds - 1 for row in rows]
