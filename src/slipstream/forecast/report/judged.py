"""Data rows for the charts that compare forecasts with measurements."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.forecast.report.rows import Row
from slipstream.forecast.validate.score import Judged, ValidationReport

# Relative errors at the edges of the bands in the chart.
BANDS = (0.1, 0.2)


def points(report: ValidationReport) -> list[Row]:
    """Return the forecast and the measured seconds per step of each measurement.

    Measurements that state a speed-up instead of a time are left out.

    Args:
        report: Measurements from a table, each with its forecast.
    """
    return [
        {**_named(judged), "measured": judged.case.measured, "forecast": judged.forecast}
        for judged in report.judged
        if judged.case.measures != "speedup"
    ]


def efficiencies(report: ValidationReport) -> list[Row]:
    """Return forecast and measured efficiency for each measurement with a single-device baseline.

    Args:
        report: Measurements from a table, each with its forecast.
    """
    return [
        {**_named(judged), "measured": measured, "forecast": forecast}
        for judged, forecast, measured in report.efficiencies()
    ]


def sources(report: ValidationReport) -> list[str]:
    """Return the sources of the measurements; the source with most measurements comes first."""
    counts: dict[str, int] = {}
    for judged in report.judged:
        counts[judged.case.source] = counts.get(judged.case.source, 0) + 1
    return sorted(counts, key=lambda name: (-counts[name], name))


def bands(rows: Sequence[Row]) -> list[Row]:
    """Return the ends of the chart's diagonal, and the corners of a band for each error in `BANDS`.

    Args:
        rows: Data points of the chart, as `points` returns them.
    """
    numbers = [row[name] for row in rows for name in ("measured", "forecast")]
    return [
        {"within": band, "measured": end, "low": end * (1 - band), "high": end * (1 + band)}
        for band in (0.0, *BANDS)
        for end in (min(numbers), max(numbers))
    ]


def _named(judged: Judged) -> Row:
    case = judged.case
    return {
        "source": case.source,
        "model": case.model,
        "gpu": case.gpu,
        "framework": case.framework,
        "devices": case.devices,
        "line": case.line,
        "ratio": judged.forecast / case.measured - 1,
    }
