"""Data rows for the charts that compare forecasts with measurements."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.forecast.report.rows import Row
from slipstream.forecast.validate.score import Judged, ValidationReport

# Relative errors at the edges of the bands in the chart.
BANDS = (0.1, 0.2)


def points(report: ValidationReport) -> list[Row]:
    """Return forecast and measured seconds per step for each measurement of a time.

    Measurements of a speed-up are left out.

    Args:
        report: Comparison of a table of measurements with their forecasts.
    """
    return [
        {**_named(judged), "measured": judged.case.measured, "forecast": judged.forecast}
        for judged in report.judged
        if judged.case.measures != "speedup"
    ]


def efficiencies(report: ValidationReport) -> list[Row]:
    """Return forecast and measured efficiency for each measurement with a single-device baseline.

    Args:
        report: Comparison of a table of measurements with their forecasts.
    """
    return [
        {**_named(judged), "measured": measured, "forecast": forecast}
        for judged, forecast, measured in report.efficiencies()
    ]


def sources(report: ValidationReport) -> list[str]:
    """Return the sources of the measurements, sorted by falling number of measurements."""
    counts: dict[str, int] = {}
    for judged in report.judged:
        counts[judged.case.source] = counts.get(judged.case.source, 0) + 1
    return sorted(counts, key=lambda name: (-counts[name], name))


def bands(rows: Sequence[Row]) -> list[Row]:
    """Return the ends of the chart's diagonal, and the corners of a band for each error in `BANDS`.

    Args:
        rows: Rows from `points`.
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
