"""What the charts of judged measurements show, as rows."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.forecast.report.rows import Row
from slipstream.forecast.validate.score import Judged, Report

BANDS = (0.1, 0.2)


def points(report: Report) -> list[Row]:
    """Returns forecast and measured seconds of the rows that tell them.

    Args:
        report: of a judged table.
    """
    return [
        {**_named(each), "measured": each.case.measured, "forecast": each.forecast}
        for each in report.judged
        if each.case.measures != "speedup"
    ]


def efficiencies(report: Report) -> list[Row]:
    """Returns forecast and measured scaling efficiency of the rows whose single device is known.

    Args:
        report: of a judged table.
    """
    return [
        {**_named(each), "measured": measured, "forecast": forecast}
        for each, forecast, measured in report.efficiencies()
    ]


def sources(report: Report) -> list[str]:
    """Returns the sources of the rows that were read, those with most rows first."""
    counts: dict[str, int] = {}
    for each in report.judged:
        counts[each.case.source] = counts.get(each.case.source, 0) + 1
    return sorted(counts, key=lambda name: (-counts[name], name))


def bands(rows: Sequence[Row]) -> list[Row]:
    """Returns the ends of the bands in which forecasts are off by at most as much as `BANDS` say.

    Args:
        rows: as `points` returns.
    """
    numbers = [row[name] for row in rows for name in ("measured", "forecast")]
    return [
        {"within": band, "measured": end, "low": end * (1 - band), "high": end * (1 + band)}
        for band in (0.0, *BANDS)
        for end in (min(numbers), max(numbers))
    ]


def _named(each: Judged) -> Row:
    case = each.case
    return {
        "source": case.source,
        "model": case.model,
        "gpu": case.gpu,
        "framework": case.framework,
        "devices": case.devices,
        "line": case.line,
        "ratio": each.forecast / case.measured - 1,
    }
