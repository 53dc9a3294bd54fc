"""Chart of latency against throughput, drawn with Vega-Altair."""

# Altair's type annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt

from slipstream.bench.serve.clients import SAMPLE_SECONDS
from slipstream.bench.serve.results import Overload, ServeReport
from slipstream.errors import UsageError
from slipstream.forecast.report import colours

SUFFIXES = (".svg", ".png", ".html")

_WIDTH, _HEIGHT = 640, 380
_MEMORY_HEIGHT = 140

Row = dict[str, Any]


def check_chart(path: Path) -> None:
    """Check the suffix of a chart's file name.

    Raises:
        UsageError: the suffix is not one of `SUFFIXES`.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"the chart is {path.name!r}; allowed: {', '.join(SUFFIXES)}")


def draw(report: ServeReport, path: Path) -> None:
    """Draw latency against throughput and, if open loops were run, the memory of the servers.

    Args:
        report: Results of the serving benchmark.
        path: Path of the chart, with a suffix from `SUFFIXES`. An HTML chart needs no network.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    chart = _curves(report)
    if report.overloads:
        chart = alt.vconcat(chart, _memory(report))
    # An HTML file includes the JavaScript library that draws the chart.
    options: Row = {"inline": True} if path.suffix == ".html" else {"scale_factor": 2.0}
    chart.save(str(path), **options)


def curve_rows(report: ServeReport) -> list[Row]:
    """Return the points of the curves of p50 and p99, as rows for Vega-Altair."""
    return [
        {
            "by": point.contender, "clients": point.clients, "of": name,
            "rate": point.middle.rate, "ms": seconds * 1e3,
        }
        for point in report.points
        if point.clients
        for name, seconds in (("p50", point.middle.p50), ("p99", point.middle.p99))
    ]  # fmt: skip


def memory_rows(overload: Overload) -> list[Row]:
    """Return the measured sizes of a server's memory, as rows for Vega-Altair."""
    return [
        {"by": overload.contender, "seconds": number * SAMPLE_SECONDS, "mb": sample / 1e6}
        for number, sample in enumerate(overload.turn.memory)
    ]


def _curves(report: ServeReport) -> Any:
    base = alt.Chart(
        alt.InlineData(values=curve_rows(report)), title=f"{report.package} by {report.engine}"
    )
    x = alt.X("rate:Q", title="results per second").scale(zero=True)
    y = (
        alt.Y("ms:Q", title="latency, ms: p50, and p99 dashed")
        .scale(type="log", nice=True)
        .axis(format=",~r")
    )
    lines = base.mark_line(point=alt.OverlayMarkDef(size=50), strokeWidth=2).encode(
        x=x,
        y=y,
        order="clients:Q",
        color=_colour(report),
        strokeDash=alt.StrokeDash("of:N", legend=None).scale(range=[[1, 0], [5, 4]]),
        tooltip=[
            alt.Tooltip("by:N"),
            alt.Tooltip("clients:Q"),
            alt.Tooltip("rate:Q", title="per second", format=",.1f"),
            alt.Tooltip("of:N", title="quantile"),
            alt.Tooltip("ms:Q", format=",.2f"),
        ],
    )
    names = base.mark_text(align="left", baseline="top", dx=6, dy=4, fontSize=10)
    names = names.encode(x=x, y=y, text="clients:Q", color=_colour(report))
    return alt.layer(lines, names).properties(width=_WIDTH, height=_HEIGHT)


def _memory(report: ServeReport) -> Any:
    rows = [row for overload in report.overloads for row in memory_rows(overload)]
    chart = alt.Chart(alt.InlineData(values=rows), title="memory of the server under overload")
    return (
        chart.mark_line(strokeWidth=2)
        .encode(
            x=alt.X("seconds:Q", title="seconds"),
            y=alt.Y("mb:Q", title="MB").scale(zero=True),
            color=_colour(report),
        )
        .properties(width=_WIDTH, height=_MEMORY_HEIGHT)
    )


def _colour(report: ServeReport) -> alt.Color:
    names = list(report.contenders)
    scale = alt.Scale(domain=names, range=list(colours.ALL[: len(names)]))
    return alt.Color("by:N", title=None, scale=scale)
