"""The HTML page of a forecast: its arguments, the ranked plans, and the rejected plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from slipstream.forecast.report import charts, rows, spans, tables
from slipstream.forecast.report.page import Cell, Column, Figure, Section, Table, page
from slipstream.forecast.report.terminal import corrections, duration, launch_command
from slipstream.forecast.search.plan import Interval, Plan
from slipstream.forecast.search.search import Result

# Maximum numbers of lines in a chart, of bars in a chart, and of schedules to select from.
_LINES, _BARS, _SCHEDULES = 10, 8, 4


def forecast_page(result: Result, asked: Mapping[str, object], most: int = 10) -> str:
    """Return a forecast as a self-contained HTML page.

    The call blocks for a second or two.

    Args:
        result: Ranked plans and rejected hosts, from a search.
        asked: Names and values of the arguments of `slipstream.forecast.forecast`.
        most: Maximum number of plans in the table (default 10).
    """
    sections = [_asked(asked)]
    if result.plans:
        sections += [
            Section(name="plans", title="Plans", tables=[tables.ranked(result.plans, most)]),
            _scaling(result.plans),
            _cost(result.plans),
            _schedule(result.plans),
            _parts(result.plans),
        ]
    if result.fit is not None:
        title = "Memory without sharding or other changes"
        sections.append(Section(name="fit", title=title, tables=[tables.fit(result.fit)]))
    if result.losses or (result.plans and result.plans[0].others):
        sections.append(_losers(result))
    return page(f"How to train {asked.get('model', 'it')}", _summary(result), sections)


def _summary(result: Result) -> str:
    if not result.plans:
        return "No plan meets all the conditions; the reasons are below."
    first = result.plans[0]
    verb = "costs" if first.machine.dollars_per_hour is not None else "takes"
    step, bounds = duration(first.seconds_per_step)
    if len(result.plans) > 1:
        words = f"Of {len(result.plans)} plans, {rows.hardware(first)} {verb} least"
    else:
        words = f"The only plan is {rows.hardware(first)}"
    command = f"To start it, run: {launch_command(first)}"
    earlier = "".join(f" {line}." for line in corrections([first]))
    return f"{words}: {step} per step ({bounds}), limited by {first.limit}.{earlier} {command}"


def _asked(asked: Mapping[str, object]) -> Section:
    lines = [
        (Cell(name.replace("_", " ")), Cell(_word(name, value)))
        for name, value in asked.items()
        if value is not None and value != () and value is not False
    ]
    table = Table("Arguments of this forecast", (Column("argument"), Column("value")), lines)
    return Section(name="asked", title="Question", tables=[table])


def _word(name: str, value: object) -> str:
    if name == "deadline" and isinstance(value, (int, float)):
        return f"{value / rows.HOUR:g} h"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in cast("Sequence[object]", value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _scaling(plans: Sequence[Plan]) -> Section:
    kinds = rows.kinds(plans)
    shown = kinds[:_LINES]
    caption = (
        "Throughput per device, as a share of the throughput of one device alone. Each point is the"
        " best plan of a machine with that number of devices."
    )
    if len(kinds) > len(shown):
        caption += (
            f" {len(kinds)} kinds of machines have plans; the chart shows the {_LINES} ranked best."
        )
    spec = charts.efficiency(rows.scaling(plans, shown), shown)
    return Section(
        name="scaling", title="Scaling", figures=[Figure("scaling-chart", caption, spec)]
    )


def _cost(plans: Sequence[Plan]) -> Section:
    of = rows.scale(plans)
    points = rows.costs(plans, of)
    caption = (
        f"Cost and time of all plans: {of.cost}, and {of.time}. No plan is both faster and cheaper"
        " than one on the orange line. A slanted bar is a plan's 80 % interval: a longer run also"
        " costs more."
    )
    return Section(
        name="cost",
        title="Cost and time",
        figures=[Figure("cost-chart", caption, charts.cost(points, of))],
        tables=[tables.front(points, of.time, of.cost)],
    )


def _schedule(plans: Sequence[Plan]) -> Section:
    first = [(number, plan) for number, plan in enumerate(plans[:_SCHEDULES], 1) if plan.step.spans]
    timeline = [row for number, plan in first for row in spans.schedule(number, plan)]
    words = {rows.label(number, plan): _words(number, plan) for number, plan in first}
    caption = (
        "Activity of devices and networks during one step, with a row for each resource. One device"
        " represents all that do the same work. If there are more than"
        f" {spans.MOST_QUEUES} rows, the first and the last are drawn. Spans too short to be"
        " visible are drawn together."
    )
    figure = Figure("schedule-chart", caption, charts.schedule(timeline, words))
    return Section(name="schedule", title="Schedule of a step", figures=[figure])


def _words(number: int, plan: Plan) -> str:
    """Return text with a plan's label, its step time, and the seconds that its timeline shows.

    The seconds of the timeline are left out if they are more than 90 % of the step time.
    """
    step, drawn = plan.step.seconds, spans.drawn(plan)
    part = "" if drawn > 0.9 * step else f"; the first {_exactly(drawn)} are drawn"
    return f"{rows.label(number, plan)}: a step of {_exactly(step)}{part}"


def _exactly(seconds: float) -> str:
    return duration(Interval(seconds, seconds, seconds))[0]


def _parts(plans: Sequence[Plan]) -> Section:
    first = plans[:_BARS]
    time, held = rows.parts(first), rows.memory(first)
    figures = [
        Figure(
            "parts-chart",
            f"Time of a step in the first {len(first)} plans. Communication that overlaps with"
            " arithmetic is not counted.",
            charts.parts(time),
        ),
        Figure(
            "memory-chart",
            f"Memory of the fullest device in the first {len(first)} plans. The red mark is the"
            " device's capacity, the grey line the 80 % interval.",
            charts.memory(held),
        ),
    ]
    return Section(
        name="parts", title="Time and memory", figures=figures, tables=[tables.parts(time)]
    )


def _losers(result: Result) -> Section:
    return Section(name="losers", title="Rejected plans", tables=list(_lost(result)))


def _lost(result: Result) -> Iterator[Table]:
    if result.plans and result.plans[0].others:
        yield tables.others(result.plans[0])
    yield from tables.losers(result)
