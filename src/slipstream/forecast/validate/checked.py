"""What PyTorch 2 adds to its kernels, from steps that `slipstream forecast check` ran.

Published tables do not say which host fed their GPUs, and those of PyTorch 2 are of FSDP alone.
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

from slipstream.errors import ConfigError
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

# What is fitted, and how far each may be from 1: the standard deviation of its logarithm.
KNOBS = {
    "memory": 0.3, "compute": 0.15, "depthwise": 0.5, "batch_norm": 0.4, "half_batch_norm": 0.4,
}  # fmt: skip
# Of a measured step and its forecast.
_SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class Checked:
    """A step of one device that was run.

    Args:
        model: name of its architecture.
        batch: samples, all at once.
        precision: of products.
        optimizer: of the parameters.
        seconds: that it took.
    """

    model: str
    batch: int
    precision: Precision
    optimizer: Optimizer
    seconds: float


def read(path: Path) -> list[Checked]:
    """Reads steps.

    Args:
        path: of a .csv file: model, batch, precision, optimizer, milliseconds; "#" begins remarks.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = csv.DictReader(line for line in lines if not line.startswith("#"))
        return [_checked(row) for row in rows]
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as steps that were checked: {error}") from error


def _checked(row: dict[str, str]) -> Checked:
    if row["precision"] not in get_args(Precision):
        raise ValueError(f"precision is {row['precision']!r}")
    precision = cast("Precision", row["precision"])
    optimizer = Optimizer[row["optimizer"].upper()]
    seconds = float(row["milliseconds"]) / 1e3
    return Checked(row["model"], int(row["batch"]), precision, optimizer, seconds)


def forecast(row: Checked, device: str, parameters: Parameters, runtime: Runtime) -> float:
    """Returns the seconds of a step. Blocks for seconds where its model was not traced before.

    Args:
        row: that was run.
        device: name of what it ran on.
        parameters: whose rates and links count.
        runtime: of the framework.
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
    found = source(model)
    traced = resizable(partial(found.trace, precision=precision, whole=found.whole(precision)))
    return Simulation(traced.at(batch), flash=True)


def fit(rows: Sequence[Checked], device: str, parameters: Parameters, guess: Runtime) -> Runtime:
    """Returns a runtime with the least squares of logarithms of errors.

    Args:
        rows: that were run.
        device: name of what they ran on.
        parameters: whose rates count.
        guess: with the host's numbers, which stay.
    """

    def residuals(point: npt.NDArray[np.float64]) -> list[float]:
        runtime = _at(guess, point)
        off = [forecast(row, device, parameters, runtime) / row.seconds for row in rows]
        prior = point / np.array(list(KNOBS.values()))
        return [*(np.log(off) / _SPREAD).tolist(), *prior.tolist()]

    start: Any = np.zeros(len(KNOBS))
    found: Any = least_squares(residuals, start, diff_step=1e-3)
    return _at(guess, cast("npt.NDArray[np.float64]", found.x))


def _at(guess: Runtime, point: npt.NDArray[np.float64]) -> Runtime:
    return replace(guess, **dict(zip(KNOBS, np.exp(point).tolist(), strict=True)))


def errors(
    rows: Sequence[Checked], device: str, parameters: Parameters, guess: Runtime
) -> list[float]:
    """Returns by how much each row is off as a share, forecast from the other models' rows.

    Args:
        rows: that were run.
        device: name of what they ran on.
        parameters: whose rates count.
        guess: as of `fit`.
    """
    models = {row.model for row in rows}
    without = {
        model: fit([row for row in rows if row.model != model], device, parameters, guess)
        for model in models
    }
    return [forecast(row, device, parameters, without[row.model]) / row.seconds - 1 for row in rows]
