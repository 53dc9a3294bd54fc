"""The page of a forecast: what was asked, the ranked plans, and why others lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from slipstream.forecast.report import charts, rows, spans, tables
from slipstream.forecast.report.page import Cell, Column, Figure, Section, Table, page
from slipstream.forecast.report.terminal import duration, launch_command
from slipstream.forecast.search.plan import Interval, Plan
from slipstream.forecast.search.search import Result

# Lines of a chart, bars of a chart, and schedules to choose from.
_LINES, _BARS, _SCHEDULES = 10, 8, 4


def forecast_page(result: Result, asked: Mapping[str, object], most: int = 10) -> str:
    """Returns a forecast as a page of HTML that loads nothing. Blocks for a second or two.

    Args:
        result: of a search.
        asked: names and values, as the arguments of `slipstream.forecast.forecast`.
        most: plans to have in the table.
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
        title = "Does the whole model fit on each device"
        sections.append(Section(name="fit", title=title, tables=[tables.fit(result.fit)]))
    if result.losses or (result.plans and result.plans[0].others):
        sections.append(_losers(result))
    return page(f"What training {asked.get('model', 'it')} takes", _summary(result), sections)


def _summary(result: Result) -> str:
    if not result.plans:
        return "Nothing that is allowed does it; below is why."
    first = result.plans[0]
    ranked = "costs" if first.machine.dollars_per_hour is not None else "takes"
    count = f"Of {len(result.plans)} plans" if len(result.plans) > 1 else "The one plan"
    step, bounds = duration(first.seconds_per_step)
    words = f", {rows.hardware(first)} {ranked} least" if len(result.plans) > 1 else (
        f" is {rows.hardware(first)}"
    )  # fmt: skip
    start = f"It starts with: {launch_command(first)}"
    return f"{count}{words}: {step} a step ({bounds}), limited by {first.limit}. {start}"


def _asked(asked: Mapping[str, object]) -> Section:
    lines = [
        (Cell(name.replace("_", " ")), Cell(_word(name, value)))
        for name, value in asked.items()
        if value is not None and value != () and value is not False
    ]
    table = Table("What was asked", (Column("what"), Column("value")), lines)
    return Section(name="asked", title="Question", tables=[table])


def _word(name: str, value: object) -> str:
    if name == "deadline" and isinstance(value, (int, float)):
        return f"{value / rows.HOUR:g} h"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(each) for each in cast("Sequence[object]", value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _scaling(plans: Sequence[Plan]) -> Section:
    kinds = rows.kinds(plans)
    shown = kinds[:_LINES]
    caption = (
        "Throughput per device over the number of devices, as a share of one device's: the best"
        " plan of each machine at each size."
    )
    if len(kinds) > len(shown):
        caption += (
            f" {len(kinds)} kinds of machines have plans; these are the {_LINES} best ranked."
        )
    spec = charts.efficiency(rows.scaling(plans, shown), shown)
    return Section(
        name="scaling", title="Scaling", figures=[Figure("scaling-chart", caption, spec)]
    )


def _cost(plans: Sequence[Plan]) -> Section:
    of = rows.scale(plans)
    points = rows.costs(plans, of)
    caption = (
        f"Cost over time of all plans: {of.cost}, and {of.time}. On the orange line are those than"
        " which nothing is both faster and cheaper. A slanted bar is an interval: who takes longer"
        " pays for it."
    )
    return Section(
        name="cost",
        title="Cost and time",
        figures=[Figure("cost-chart", caption, charts.cost(points, of))],
        tables=[tables.front(points, of.time, of.cost)],
    )


def _schedule(plans: Sequence[Plan]) -> Section:
    first = [(number, plan) for number, plan in enumerate(plans[:_SCHEDULES], 1) if plan.step.spans]
    found = [row for number, plan in first for row in spans.schedule(number, plan)]
    words = {rows.label(number, plan): _words(number, plan) for number, plan in first}
    caption = (
        "What devices and networks do in one step, a row for each queue: one device stands for all"
        f" that do the same. Of more than {spans.MOST_QUEUES} queues the first and the last are"
        " drawn, and passes too short to be seen are drawn together."
    )
    figure = Figure("schedule-chart", caption, charts.schedule(found, words))
    return Section(name="schedule", title="Schedule of a step", figures=[figure])


def _words(number: int, plan: Plan) -> str:
    """A plan with its step, and how much of that is drawn where it is not nearly all."""
    step, drawn = plan.step.seconds, spans.drawn(plan)
    part = "" if drawn > 0.9 * step else f", the first {_exactly(drawn)} of it drawn"
    return f"{rows.label(number, plan)}: a step of {_exactly(step)}{part}"


def _exactly(seconds: float) -> str:
    return duration(Interval(seconds, seconds, seconds))[0]


def _parts(plans: Sequence[Plan]) -> Section:
    first = plans[:_BARS]
    time, held = rows.parts(first), rows.memory(first)
    figures = [
        Figure(
            "parts-chart",
            f"Where the time of a step goes, of the first {len(first)} plans: what nothing hides.",
            charts.parts(time),
        ),
        Figure(
            "memory-chart",
            f"Memory of the fullest device, of the first {len(first)} plans; the red mark is what"
            " the device has, the grey line the interval.",
            charts.memory(held),
        ),
    ]
    return Section(
        name="parts", title="Time and memory", figures=figures, tables=[tables.parts(time)]
    )


def _losers(result: Result) -> Section:
    return Section(name="losers", title="Why others lost", tables=list(_lost(result)))


def _lost(result: Result) -> Iterator[Table]:
    if result.plans and result.plans[0].others:
        yield tables.others(result.plans[0])
    yield from tables.losers(result)
