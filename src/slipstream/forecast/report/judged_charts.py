"""Charts that compare forecasts with measurements, made with Vega-Altair."""

# Altair's methods return values without full types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from slipstream.forecast.report import colours
from slipstream.forecast.report.charts import Spec, wide_legend
from slipstream.forecast.report.judged import BANDS
from slipstream.forecast.report.rows import Row

_ALL = "all sources"
_HEIGHT = 480
# Sources with the same colour have different shapes.
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")


def scatter(rows: Sequence[Row], bands: Sequence[Row], sources: Sequence[str]) -> Spec:
    """Return a chart of forecast against measured seconds, with a diagonal and error bands.

    Args:
        rows: Data points of the chart, as `judged.points` returns them.
        bands: Data points of the diagonal and the error bands, as `judged.bands` returns them.
        sources: Names of the sources in the order of the legend.
    """
    ends = alt.Chart(alt.InlineData(values=list(bands)))
    x = alt.X("measured:Q", title="measured seconds").scale(type="log", nice=False)
    x = x.axis(format=",~r", tickCount=6)
    y = alt.Y("low:Q", title="forecast seconds").scale(type="log", nice=False)
    y = y.axis(format=",~r", tickCount=6)
    areas = [
        ends.mark_area(color=colours.GREY, opacity=0.18, clip=True)
        .transform_filter(f"datum.within == {band}").encode(x=x, y=y, y2="high:Q")
        for band in BANDS
    ]  # fmt: skip
    diagonal = ends.mark_line(color=colours.GREY, strokeWidth=1.5).encode(x=x, y=y)
    diagonal = diagonal.transform_filter("datum.within == 0")
    dots = _dots(rows, "forecast seconds", sources, ",.4~r").encode(
        x=x, y=alt.Y("forecast:Q", title="forecast seconds").scale(type="log", nice=False)
    )
    return _together([*areas, diagonal, dots], sources)


def efficiency(rows: Sequence[Row], sources: Sequence[str]) -> Spec:
    """Return a chart of forecast against measured efficiency.

    A band in the chart contains errors of up to 10 percentage points.

    Args:
        rows: Data points of the chart, as `judged.efficiencies` returns them.
        sources: Names of the sources in the order of the legend.
    """
    top = max(1.0, *(row[name] for row in rows for name in ("measured", "forecast")))
    ends = [{"at": end, "low": end - 0.1, "high": end + 0.1} for end in (0.0, top)]
    base = alt.Chart(alt.InlineData(values=ends))
    domain = alt.Scale(domain=[0, top], nice=False, clamp=True)
    axis = alt.Axis(format="%")
    x = alt.X("at:Q", title="measured efficiency", scale=domain, axis=axis)
    area = base.mark_area(color=colours.GREY, opacity=0.18, clip=True)
    area = area.encode(x=x, y=alt.Y("low:Q", scale=domain, axis=axis), y2="high:Q")
    diagonal = base.mark_line(color=colours.GREY, strokeWidth=1.5)
    diagonal = diagonal.encode(x=x, y=alt.Y("at:Q", scale=domain, axis=axis))
    dots = _dots(rows, "forecast efficiency", sources, ".1%").encode(
        x=alt.X("measured:Q", title="measured efficiency", scale=domain, axis=axis),
        y=alt.Y("forecast:Q", title="forecast efficiency", scale=domain, axis=axis),
    )
    return _together([area, diagonal, dots], sources)


def _dots(rows: Sequence[Row], title: str, sources: Sequence[str], form: str) -> alt.Chart:
    count = len(colours.ALL)
    palette = [colours.ALL[index % count] for index in range(len(sources))]
    shapes = [_SHAPES[index // count % len(_SHAPES)] for index in range(len(sources))]
    domain = list(sources)
    return (
        alt.Chart(alt.InlineData(values=list(rows)))
        .mark_point(filled=True, size=36, opacity=0.75, clip=True)
        .transform_filter(f"chosen == '{_ALL}' || datum.source == chosen")
        .encode(
            color=alt.Color("source:N", legend=wide_legend(None, 380))
            .scale(domain=domain, range=palette),
            shape=alt.Shape("source:N", legend=wide_legend(None, 380))
            .scale(domain=domain, range=shapes),
            tooltip=[
                alt.Tooltip("model:N"),
                alt.Tooltip("gpu:N"),
                alt.Tooltip("framework:N"),
                alt.Tooltip("devices:Q"),
                alt.Tooltip("forecast:Q", title=title, format=form),
                alt.Tooltip("measured:Q", format=form),
                alt.Tooltip("ratio:Q", title="error", format="+.1%"),
                alt.Tooltip("source:N"),
                alt.Tooltip("line:Q", title="line of the table"),
            ],
        )
    )  # fmt: skip


def _together(layers: list[alt.Chart], sources: Sequence[str]) -> dict[str, Any]:
    select = alt.binding_select(options=[_ALL, *sources], name="Source ")
    chosen = alt.param(name="chosen", bind=select, value=_ALL)
    chart = alt.layer(*layers).add_params(chosen)
    return chart.properties(width="container", height=_HEIGHT).to_dict()
