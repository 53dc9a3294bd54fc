"""How far forecasts are from what was measured: by source, model, device and scale; and of memory,
where a table has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from slipstream.errors import SlipstreamError
from slipstream.forecast.garbage import rare_collections
from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.validate.case import Case, Unread
from slipstream.forecast.validate.folds import Folds, Leave, fold_of
from slipstream.forecast.validate.memory import Footprint, footprint
from slipstream.forecast.validate.predict import Predictor
from slipstream.forecast.validate.scaling import Efficiency, Singles
from slipstream.forecast.validate.table import read

WORST = 10


@dataclass(frozen=True, slots=True)
class Judged:
    """A case and its forecast, in the case's unit.

    Args:
        case: with what was measured.
        forecast: by parameters that were fitted without it.
        efficiency: None: the rate of one device was not published.
    """

    case: Case
    forecast: float
    efficiency: Efficiency | None

    @property
    def error(self) -> float:
        """|forecast - measured| / measured."""
        return abs(self.forecast / self.case.measured - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of some rows.

    Args:
        rows: in the table.
        read: of these.
        mape: mean absolute error over what was measured; nan: none was read.
        median: median absolute error; nan: none was read.
        p90: 90th percentile of the absolute errors.
        bias: mean of forecast over measured, less 1.
    """

    rows: int
    read: int
    mape: float
    median: float
    p90: float
    bias: float

    @property
    def shares(self) -> tuple[float, float, float, float]:
        """Mean, median and 90th percentile of the errors, and their bias."""
        return self.mape, self.median, self.p90, self.bias


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A table judged.

    Args:
        judged: rows that were read.
        unread: rows that were not, and why.
        leave: what the parameters had not seen.
        footprints: peaks of memory, of rows that state them.
    """

    judged: tuple[Judged, ...]
    unread: tuple[Unread, ...]
    leave: Leave
    footprints: tuple[Footprint, ...] = ()

    def by(self, key: Callable[[Case], str]) -> dict[str, Score]:
        """Returns the errors of rows that are alike.

        Args:
            key: what makes them alike.
        """
        groups: dict[str, list[float]] = {}
        for each in self.judged:
            groups.setdefault(key(each.case), []).append(each.forecast / each.case.measured)
        return {name: _score(group, 0) for name, group in sorted(groups.items())}

    def memory(self) -> dict[str, Score]:
        """Returns the errors of peaks of memory of each source that states some."""
        groups: dict[str, list[float]] = {}
        for each in self.footprints:
            groups.setdefault(each.case.source, []).append(each.forecast / each.measured)
        return {name: _score(group, 0) for name, group in sorted(groups.items())}

    def sources(self) -> dict[str, Score]:
        """Returns the errors of each source; rows that were not read count in `rows`."""
        missed: dict[str, int] = {}
        for row in self.unread:
            missed[row.source] = missed.get(row.source, 0) + 1
        found: dict[str, Score] = {name: _score([], count) for name, count in missed.items()}
        for name, score in self.by(lambda case: case.source).items():
            found[name] = replace(score, rows=score.rows + missed.get(name, 0))
        return dict(sorted(found.items()))

    def worst(self, count: int = WORST) -> list[Judged]:
        """Returns the rows with the largest errors."""
        return sorted(self.judged, key=lambda each: -each.error)[:count]

    def efficiencies(self) -> list[tuple[Judged, float, float]]:
        """Returns rows on several devices with what is forecast and measured of their throughput,
        as shares of so many times the published throughput of one device."""
        return [
            (each, each.efficiency.forecast, each.efficiency.measured)
            for each in self.judged
            if each.efficiency is not None
        ]

    def ranks(self) -> tuple[int, int]:
        """Returns in how many groups of rows that differ in strategy only the best measured one is
        among the first three forecast, and how many groups of more than three there are."""
        groups: dict[str, list[Judged]] = {}
        for each in self.judged:
            if each.case.measures == "step" and each.case.runtime == "megatron":
                groups.setdefault(each.case.group, []).append(each)
        large = [group for group in groups.values() if len(group) > 3]
        hits = 0
        for group in large:
            best = min(group, key=lambda each: each.case.measured)
            first = sorted(group, key=lambda each: each.forecast)[:3]
            hits += best in first
        return hits, len(large)


def group_of(case: Case) -> str:
    """Returns the kind of model that a case is of, as intervals know it: "language", "encoder",
    "image" or "tables"."""
    if case.architecture.startswith(("dlrm", "wide-deep", "ncf")):
        return "tables"
    if case.architecture.startswith(("gpt", "mpt", "llama")):
        return "language"
    return "encoder" if case.architecture.startswith(("bert", "transformer")) else "image"


def _score(ratios: Sequence[float], missed: int) -> Score:
    """Errors of rows, from what was forecast over what was measured."""
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
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Report:
    """Returns how a table's rows are forecast. Blocks for seconds per model that is traced.

    Args:
        path: of the table.
        folds: parameters that had not seen parts of it.
        leave: what must not have been seen where a row is judged.
        progress: told how many rows of how many are done.

    Raises:
        UsageError: columns are missing.
        ConfigError: the file cannot be read.
    """
    cases, unread = read(path)
    parameters = folds.parameters()
    predictor, singles = Predictor(folds.guess), Singles(cases)
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
    return Report(
        judged=tuple(judged), unread=tuple(unread), leave=leave, footprints=tuple(footprints)
    )


def _chosen(parameters: Mapping[str, Parameters], fold: str) -> Parameters:
    """Parameters of a fold; a model that was not seen has those of its source without it, a source
    that was not seen those of all rows."""
    return parameters.get(fold) or parameters[""]


def judge(case: Case, singles: Singles, predictor: Predictor, parameters: Parameters) -> Judged:
    """Returns a case with its forecast.

    Args:
        case: of a table.
        singles: of that table.
        predictor: that simulates it.
        parameters: that had not seen it.
    """
    forecast = predictor.forecast(case, parameters)
    return Judged(case, forecast, singles.efficiency(case, predictor, parameters))
