"""Charts of a forecast, made with Vega-Altair."""

# Altair's methods return values without full types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from slipstream.forecast.report import colours
from slipstream.forecast.report.rows import PARTS, USES, ChartScale, Row

Spec = Mapping[str, Any]

# Narrow screens show a plan's number instead of its name, to leave room for the chart.
_SHORT = "windowSize()[0] < 640 ? split(datum.{0}, '.')[0] : datum.{0}"
_COLUMNS = "max(1, floor(windowSize()[0] / {}))"
_HEIGHT, _BAR = 340, 30


def wide_legend(title: str | None, entry_width: int = 300) -> alt.Legend:
    """Return a legend below a chart, with as many columns as fit.

    Args:
        title: Title of the legend.
        entry_width: Width of an entry in pixels.
    """
    columns = alt.ExprRef(_COLUMNS.format(entry_width))
    return alt.Legend(orient="bottom", title=title, columns=columns, symbolLimit=0)


def efficiency(rows: Sequence[Row], kinds: Sequence[str]) -> Spec:
    """Return a chart of efficiency against the number of devices, with a line for each machine.

    Args:
        rows: Data points of the chart, as `rows.scaling` returns them.
        kinds: Names of the kinds of machines in the order of the legend.
    """
    counts = sorted({row["devices"] for row in rows})
    chart = (
        alt.Chart(alt.InlineData(values=list(rows)))
        .mark_line(point=alt.OverlayMarkDef(size=60), strokeWidth=2)
        .encode(
            x=alt.X("devices:Q", title="devices", axis=alt.Axis(values=counts, grid=False))
            .scale(type="log", base=2),
            y=alt.Y("efficiency:Q", title="throughput per device / of one device")
            .axis(format="%").scale(zero=False, nice=True),
            color=alt.Color("kind:N", legend=wide_legend(None))
            .scale(domain=list(kinds), range=list(colours.ALL)),
            tooltip=[
                alt.Tooltip("kind:N", title="machine"),
                alt.Tooltip("devices:Q"),
                alt.Tooltip("efficiency:Q", format=".1%"),
                alt.Tooltip("low:Q", title="at least", format=".1%"),
                alt.Tooltip("high:Q", title="at most", format=".1%"),
                alt.Tooltip("limit:N", title="limited by"),
                alt.Tooltip("plan:N"),
            ],
        )
    )  # fmt: skip
    return chart.properties(width="container", height=_HEIGHT).to_dict()


def cost(rows: Sequence[Row], of: ChartScale) -> Spec:
    """Return a chart of the cost and time of all plans, with intervals and the Pareto front.

    Args:
        rows: Data points of the chart, as `rows.costs` returns them.
        of: Units and titles of the axes for time and cost.
    """
    money = "$,.4~r" if of.priced else ",.4~r"
    base = alt.Chart(alt.InlineData(values=list(rows)))
    x = alt.X("time_value:Q", title=of.time).scale(type="log", nice=False, padding=16)
    x = x.axis(format=",~r", tickCount=6)
    y = alt.Y("cost_value:Q", title=of.cost).scale(type="log", nice=False, padding=16)
    y = y.axis(format="$,~r" if of.priced else ",~r", tickCount=6)
    colour = alt.when("datum.front").then(alt.value(colours.ORANGE))
    colour = colour.otherwise(alt.value(colours.GREY))
    bars = base.mark_rule(strokeWidth=1.5, opacity=0.55).encode(
        x=alt.X("time_low:Q", title=of.time), x2="time_high:Q",
        y=alt.Y("cost_low:Q", title=of.cost), y2="cost_high:Q",
        color=colour,
    )  # fmt: skip
    points = base.mark_circle(size=80, opacity=0.95).encode(
        x=x, y=y, color=colour,
        tooltip=[
            alt.Tooltip("plan:N"),
            alt.Tooltip("kind:N", title="machine"),
            alt.Tooltip("time_value:Q", title=of.time, format=",.4~r"),
            alt.Tooltip("time_low:Q", title="at least", format=",.4~r"),
            alt.Tooltip("time_high:Q", title="at most", format=",.4~r"),
            alt.Tooltip("cost_value:Q", title=of.cost, format=money),
            alt.Tooltip("cost_low:Q", title="at least", format=money),
            alt.Tooltip("cost_high:Q", title="at most", format=money),
        ],
    )  # fmt: skip
    front = base.transform_filter("datum.front")
    line = front.mark_line(interpolate="step-after", color=colours.ORANGE).encode(x=x, y=y)
    names = front.mark_text(align="left", baseline="bottom", dx=6, dy=-4, fontWeight="bold")
    names = names.encode(x=x, y=y, text="number:N")
    layers = alt.layer(bars, line, points, names)
    return layers.properties(width="container", height=420).to_dict()


def parts(rows: Sequence[Row]) -> Spec:
    """Return a chart with a bar for each plan, divided into the parts of its step time.

    Args:
        rows: Data points of the chart, as `rows.parts` returns them.
    """
    chart = _bars(rows, "share:Q", "share of the step", "part", PARTS, colours.PARTS)
    tooltip = [
        alt.Tooltip("plan:N"),
        alt.Tooltip("part:N"),
        alt.Tooltip("ms:Q", title="ms", format=",.3~f"),
        alt.Tooltip("share:Q", format=".1%"),
    ]
    chart = chart.encode(tooltip=tooltip)
    chart.encoding.x.axis = alt.Axis(format="%", tickCount=5)
    chart.encoding.x.scale = alt.Scale(domain=[0, 1])
    return chart.properties(width="container", height=_height(rows)).to_dict()


def memory(rows: Sequence[Row]) -> Spec:
    """Return a chart with a bar for each plan, divided into the uses of its memory.

    A mark on each bar shows the memory capacity of the plan's device.

    Args:
        rows: Data points of the chart, as `rows.memory` returns them.
    """
    bars = _bars(rows, "gib:Q", "GiB on the fullest device", "use", USES, colours.USES).encode(
        tooltip=[
            alt.Tooltip("plan:N"),
            alt.Tooltip("use:N", title="used for"),
            alt.Tooltip("gib:Q", title="GiB", format=",.2f"),
            alt.Tooltip("has:Q", title="GiB that the device has"),
        ]
    )
    first = alt.Chart(alt.InlineData(values=[row for row in rows if row["order"] == 0]))
    ends = (
        first.mark_tick(thickness=3, size=26, color=colours.RED)
        .encode(
            x="has:Q", y=alt.Y("plan:N", sort=None),
            tooltip=[alt.Tooltip("has:Q", title="GiB that the device has")],
        )
    )  # fmt: skip
    may_be = first.mark_rule(strokeWidth=1.5, color=colours.GREY).encode(
        x="low:Q", x2="high:Q", y=alt.Y("plan:N", sort=None),
        tooltip=[
            alt.Tooltip("low:Q", title="GiB at least", format=",.1f"),
            alt.Tooltip("high:Q", title="GiB at most", format=",.1f"),
        ],
    )  # fmt: skip
    layers = alt.layer(bars, may_be, ends)
    return layers.properties(width="container", height=_height(rows)).to_dict()


def schedule(rows: Sequence[Row], plans: Mapping[str, str]) -> Spec:
    """Return a timeline chart of the resources in one step, for a plan that the reader selects.

    Args:
        rows: Bars of the timelines of all plans, as `spans.schedule` returns them.
        plans: Text of each menu entry, by the plan's label in `rows`.
    """
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    select = alt.binding_select(options=list(plans), labels=list(plans.values()), name="Plan ")
    chosen = alt.param(name="chosen", bind=select, value=next(iter(plans)))
    chart = (
        alt.Chart(alt.InlineData(values=list(rows)))
        .mark_bar(height=alt.RelativeBandSize(0.8), strokeWidth=0)
        .encode(
            x=alt.X("start:Q", title="ms since the step began")
            .scale(nice=False).axis(tickCount=8),
            x2="end:Q",
            y=alt.Y("queue:N", title=None, sort=alt.EncodingSortField("order", op="min")),
            color=alt.Color("kind:N", legend=wide_legend(None, 150))
            .scale(domain=kinds, range=colours.of_spans(kinds)),
            tooltip=[
                alt.Tooltip("queue:N"),
                alt.Tooltip("what:N"),
                alt.Tooltip("start:Q", title="start (ms)", format=",.3f"),
                alt.Tooltip("end:Q", title="end (ms)", format=",.3f"),
                alt.Tooltip("ms:Q", title="duration (ms)", format=",.3f"),
            ],
        )
        .transform_filter("datum.plan == chosen")
        .transform_calculate(ms="datum.end - datum.start")
        .add_params(chosen)
    )  # fmt: skip
    return chart.properties(width="container", height=alt.Step(26)).to_dict()


def _height(rows: Sequence[Row]) -> int:
    return _BAR * len({row["plan"] for row in rows})


def _bars(
    rows: Sequence[Row],
    x: str,
    title: str,
    of: str,
    names: Sequence[str],
    range_: Sequence[str],
) -> alt.Chart:
    """Return a chart with a bar for each plan, stacked from named parts."""
    labels = alt.Axis(labelExpr=_SHORT.format("label"), labelLimit=280)
    return (
        alt.Chart(alt.InlineData(values=list(rows)))
        .mark_bar(height=alt.RelativeBandSize(0.7))
        .encode(
            x=alt.X(x, title=title),
            y=alt.Y("plan:N", title=None, sort=None, axis=labels),
            color=alt.Color(f"{of}:N", legend=wide_legend(None, 200))
            .scale(domain=list(names), range=list(range_)),
            order=alt.Order("order:Q"),
        )
    )  # fmt: skip
