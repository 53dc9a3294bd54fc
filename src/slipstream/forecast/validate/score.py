"""Errors of forecasts and of peak memory, by source, model, device and scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from slipstream.errors import SlipstreamError
from slipstream.forecast.garbage import rare_collections
from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.validate.case import PublishedCase, Unread
from slipstream.forecast.validate.folds import Folds, Leave, fold_of
from slipstream.forecast.validate.memory import Footprint, footprint
from slipstream.forecast.validate.predict import CasePredictor
from slipstream.forecast.validate.scaling import Efficiency, Singles
from slipstream.forecast.validate.table import read

WORST = 10


@dataclass(frozen=True, slots=True)
class Judged:
    """A measurement and its forecast: both in seconds per step, or both as a speed-up.

    Args:
        case: Published measurement.
        forecast: Forecast with parameters that were fitted without this measurement.
        efficiency: Forecast and measured scaling efficiency; None if the rate of one device is
            unknown.
    """

    case: PublishedCase
    forecast: float
    efficiency: Efficiency | None

    @property
    def error(self) -> float:
        """Relative error: |forecast - measured| / measured."""
        return abs(self.forecast / self.case.measured - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of the forecasts of a group of measurements.

    Args:
        rows: Number of rows of the group in the table, including those that could not be read.
        read: Number of rows of the group that could be read.
        mape: Mean of the relative errors |forecast - measured| / measured; nan if no row was read.
        median: Median of the relative errors; nan if no row was read.
        p90: 90th percentile of the relative errors; nan if no row was read.
        bias: Mean of the ratios forecast / measured, minus 1; nan if no row was read.
    """

    rows: int
    read: int
    mape: float
    median: float
    p90: float
    bias: float

    @property
    def shares(self) -> tuple[float, float, float, float]:
        """Mean, median, 90th percentile and bias of the relative errors."""
        return self.mape, self.median, self.p90, self.bias


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """Published measurements of a table, compared with their forecasts.

    Args:
        judged: Measurements that were read, with their forecasts.
        unread: Rows that could not be read, with reasons.
        leave: Part of the table that each fit left out, as in `fold_of`: "source", "model" or
            "none".
        footprints: Forecast and measured peak memory of the rows that state it (default: none).
    """

    judged: tuple[Judged, ...]
    unread: tuple[Unread, ...]
    leave: Leave
    footprints: tuple[Footprint, ...] = ()

    def by(self, key: Callable[[PublishedCase], str]) -> dict[str, Score]:
        """Return the errors of each group of measurements, by the name of the group.

        Args:
            key: Function that returns the name of a measurement's group.
        """
        groups: dict[str, list[float]] = {}
        for judged in self.judged:
            groups.setdefault(key(judged.case), []).append(judged.forecast / judged.case.measured)
        return {name: _score(group, 0) for name, group in sorted(groups.items())}

    def memory(self) -> dict[str, Score]:
        """Return the errors of peak memory, by source."""
        groups: dict[str, list[float]] = {}
        for peak in self.footprints:
            groups.setdefault(peak.case.source, []).append(peak.forecast / peak.measured)
        return {name: _score(group, 0) for name, group in sorted(groups.items())}

    def sources(self) -> dict[str, Score]:
        """Return the errors of each source; `Score.rows` also counts rows that were not read."""
        missed: dict[str, int] = {}
        for row in self.unread:
            missed[row.source] = missed.get(row.source, 0) + 1
        scores: dict[str, Score] = {name: _score([], count) for name, count in missed.items()}
        for name, score in self.by(lambda case: case.source).items():
            scores[name] = replace(score, rows=score.rows + missed.get(name, 0))
        return dict(sorted(scores.items()))

    def worst(self, count: int = WORST) -> list[Judged]:
        """Return the measurements whose forecasts have the largest errors."""
        return sorted(self.judged, key=lambda judged: -judged.error)[:count]

    def efficiencies(self) -> list[tuple[Judged, float, float]]:
        """Return measurements on several devices with forecast and measured scaling efficiency.

        Efficiency is the throughput of n devices, divided by n times the published throughput of a
        single device.
        """
        return [
            (judged, judged.efficiency.forecast, judged.efficiency.measured)
            for judged in self.judged
            if judged.efficiency is not None
        ]

    def ranks(self) -> tuple[int, int]:
        """Return in how many groups the forecast finds the best strategy, and the number of groups.

        A group consists of four or more step times with Megatron that differ only in their
        strategy. The forecast finds the strategy with the shortest measured step if that strategy
        is among the three with the shortest forecast steps.
        """
        groups: dict[str, list[Judged]] = {}
        for judged in self.judged:
            if judged.case.measures == "step" and judged.case.runtime == "megatron":
                groups.setdefault(judged.case.group, []).append(judged)
        large = [group for group in groups.values() if len(group) > 3]
        hits = 0
        for group in large:
            best = min(group, key=lambda judged: judged.case.measured)
            first = sorted(group, key=lambda judged: judged.forecast)[:3]
            hits += best in first
        return hits, len(large)


def group_of(case: PublishedCase) -> str:
    """Return the kind of a model, such as "image"; each kind has its own prediction interval."""
    if case.architecture.startswith(("dlrm", "wide-deep", "ncf")):
        return "tables"
    if case.architecture.startswith(("gpt", "mpt", "llama")):
        return "language"
    return "encoder" if case.architecture.startswith(("bert", "transformer")) else "image"


def _score(ratios: Sequence[float], missed: int) -> Score:
    """Return the errors of a group from the ratios of forecast to measured values."""
    if not ratios:
        none = float("nan")
        return Score(rows=missed, read=0, mape=none, median=none, p90=none, bias=none)
    errors = [abs(ratio - 1) for ratio in ratios]
    return Score(
        rows=len(ratios) + missed,
        read=len(ratios),
        mape=sum(errors) / len(errors),
        median=float(np.median(errors)),
        p90=float(np.percentile(errors, 90)),
        bias=sum(ratios) / len(ratios) - 1,
    )


@rare_collections()
def validate(
    path: Path | str,
    folds: Folds,
    leave: Leave = "source",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ValidationReport:
    """Compare the published measurements of a table with their forecasts.

    The call blocks for seconds per traced model.

    Args:
        path: Location of the table, a .csv file.
        folds: Parameters of several fits, each of which left out a part of the table.
        leave: Part of the table that a fit must have left out to judge a measurement, as in
            `fold_of` (default "source").
        progress: Callback that receives the number of completed rows and the number of all rows
            (default: none).

    Raises:
        UsageError: Columns of the table are missing.
        ConfigError: The file cannot be read.
    """
    cases, unread = read(path)
    parameters = folds.parameters()
    predictor, singles = CasePredictor(folds.guess), Singles(cases)
    judged: list[Judged] = []
    footprints: list[Footprint] = []
    for done, case in enumerate(cases):
        progress(done, len(cases))
        try:
            judged.append(
                judge(case, singles, predictor, _chosen(parameters, fold_of(case, leave)))
            )
            if case.memory_mb is not None:
                footprints.append(footprint(case, predictor))
        except SlipstreamError as error:
            reason = str(error)
            unread.append(
                Unread(line=case.line, source=case.source, model=case.model, reason=reason)
            )
    return ValidationReport(
        judged=tuple(judged), unread=tuple(unread), leave=leave, footprints=tuple(footprints)
    )


def _chosen(parameters: Mapping[str, Parameters], fold: str) -> Parameters:
    """Return the parameters of a fold; if it is unknown, those of the fit to all measurements."""
    return parameters.get(fold) or parameters[""]


def judge(
    case: PublishedCase, singles: Singles, predictor: CasePredictor, parameters: Parameters
) -> Judged:
    """Return a measurement with its forecast.

    Args:
        case: Published measurement.
        singles: Published rates of single devices from the same table.
        predictor: Predictor that simulates the measurement.
        parameters: Parameters that were fitted without this measurement.
    """
    forecast = predictor.forecast(case, parameters)
    return Judged(case, forecast, singles.efficiency(case, predictor, parameters))
