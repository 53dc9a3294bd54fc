"""Tables, sentences and JSON that compare forecasts with measurements."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from rich.table import Table

from slipstream.forecast.search.intervals import Intervals
from slipstream.forecast.validate.case import PublishedCase
from slipstream.forecast.validate.folds import model_of
from slipstream.forecast.validate.score import Judged, Score, ValidationReport, group_of

KEYS: Mapping[str, Callable[[PublishedCase], str]] = {
    "source": lambda case: case.source,
    "model": model_of,
    "device": lambda case: case.device,
    "scale": lambda case: f"{1 << (case.devices - 1).bit_length():5} devices",
    "runtime": lambda case: case.runtime,
}
_MOST_REASONS = 8
# Scaling efficiency above which the single device of a row must have been slower than usual.
_BEYOND = 1.1


def score_table(report: ValidationReport, key: str) -> Table:
    """Return a table of the errors of forecasts, with one line per group of measurements.

    Args:
        report: Published measurements, compared with their forecasts.
        key: Property that the measurements of a group share: a key of `KEYS`, such as "model".
    """
    fitted = {
        "source": "without its source", "model": "without its model in its source",
        "none": "on all rows",
    }[report.leave]  # fmt: skip
    scores = report.sources() if key == "source" else report.by(KEYS[key])
    return _scores(f"Each row is forecast with parameters fitted {fitted}", key, scores)


def memory_table(report: ValidationReport) -> Table:
    """Return a table of the errors of peak memory.

    Args:
        report: Published measurements, some of which state their peak memory.
    """
    return _scores("Peak memory, for rows that state it", "source", report.memory())


def _scores(title: str, key: str, scores: Mapping[str, Score]) -> Table:
    table = Table(title=title)
    table.add_column(key)
    for name in ("rows", "read", "MAPE", "median", "p90", "bias"):
        table.add_column(name, justify="right")
    for name, score in scores.items():
        table.add_row(name, str(score.rows), str(score.read), *map(percent, score.shares))
    return table


def percent(share: float) -> str:
    """Return a share as text, such as "50.0 %" for 0.5; nan becomes "-"."""
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


def worst_table(report: ValidationReport) -> Table:
    """Return a table of the measurements whose forecasts have the largest errors."""
    table = Table(title="Rows with the largest errors")
    for name in ("line", "model", "on", "framework"):
        table.add_column(name, justify="right" if name == "line" else "left")
    for name in ("forecast", "measured", "error"):
        table.add_column(name, justify="right")
    for judged in report.worst():
        case = judged.case
        table.add_row(
            str(case.line), case.model, f"{case.devices} x {case.device}", case.framework,
            f"{judged.forecast:.4g}", f"{case.measured:.4g}", percent(judged.error),
        )  # fmt: skip
    return table


def notes(report: ValidationReport, intervals: Intervals) -> list[str]:
    """Return sentences about interval coverage, scaling efficiency, ranking and unread rows.

    Args:
        report: Published measurements, compared with their forecasts.
        intervals: Prediction intervals; the result states the share of measurements inside them.
    """
    lines = [f"80 % intervals contain {percent(coverage(report, intervals))} of the measurements."]
    efficiencies = report.efficiencies()
    if efficiencies:
        points = sum(abs(ours - theirs) for _, ours, theirs in efficiencies) / len(efficiencies)
        lines.append(
            f"Scaling efficiency: mean error of {100 * points:.1f} points over"
            f" {len(efficiencies)} rows whose single device was measured too."
        )
        beyond = sum(theirs > _BEYOND for _, _, theirs in efficiencies)
        if beyond:
            lines.append(f"{beyond} of these have a published efficiency above {_BEYOND:g}.")
    hits, groups = report.ranks()
    if groups:
        lines.append(
            f"The best measured strategy is among the first three forecast in {hits} of {groups}"
            " groups."
        )
    reasons = Counter(row.reason for row in report.unread)
    if reasons:
        lines.append(f"{len(report.unread)} rows were not read:")
        lines += [f"  {count} x {why}" for why, count in reasons.most_common(_MOST_REASONS)]
    return lines


def coverage(report: ValidationReport, intervals: Intervals) -> float:
    """Return the share of measurements that lie in the interval of their forecast."""
    inside = 0
    for judged in report.judged:
        around = intervals.around(judged.forecast, group_of(judged.case))
        inside += around.low <= judged.case.measured <= around.high
    return inside / len(report.judged) if report.judged else float("nan")


def as_json(report: ValidationReport, intervals: Intervals) -> dict[str, Any]:
    """Return measurements, forecasts and their errors as an object for JSON.

    Args:
        report: Published measurements, compared with their forecasts.
        intervals: Prediction intervals; the result states the share of measurements inside them.
    """
    efficiencies = report.efficiencies()
    points = [abs(ours - theirs) for _, ours, theirs in efficiencies]
    hits, groups = report.ranks()
    return {
        "leave": report.leave,
        "sources": {name: _score(score) for name, score in report.sources().items()},
        "memory": {name: _score(score) for name, score in report.memory().items()},
        "worst": [_judged(judged) for judged in report.worst()],
        "coverage": coverage(report, intervals),
        "efficiency": {
            "rows": len(points),
            "mean_points": 100 * sum(points) / len(points) if points else None,
        },
        "first_three": {"groups": groups, "hits": hits},
        "unread": [
            {"line": row.line, "source": row.source, "model": row.model, "reason": row.reason}
            for row in report.unread
        ],
    }


def _score(score: Score) -> dict[str, float | None]:
    fields = {
        "rows": score.rows,
        "read": score.read,
        "mape": score.mape,
        "median": score.median,
        "p90": score.p90,
    }
    return {key: None if math.isnan(value) else value for key, value in fields.items()}


def _judged(judged: Judged) -> dict[str, Any]:
    case = judged.case
    return {
        "line": case.line,
        "source": case.source,
        "model": case.model,
        "gpu": case.gpu,
        "devices": case.devices,
        "framework": case.framework,
        "forecast": judged.forecast,
        "measured": case.measured,
        "error": judged.error,
    }
