"""Tables of a forecast: ranked plans, the step times of plans, and rejected plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from slipstream.forecast.report.advice import memory, question, remedies
from slipstream.forecast.report.page import Cell, Column, Table
from slipstream.forecast.report.rows import HOUR, PARTS, STEPS, Row, hardware
from slipstream.forecast.report.terminal import (
    _groups,  # pyright: ignore[reportPrivateUsage]
    duration,
    gib,
    rounded,
    share,
    strategy_words,
)
from slipstream.forecast.search.plan import Interval, MemoryFit, Plan
from slipstream.forecast.search.search import Result

_Cells = Callable[[Plan], Cell]
_NEAREST = 5


def ranked(plans: Sequence[Plan], most: int) -> Table:
    """Return a table of the first plans, without empty columns.

    Args:
        plans: Ranked plans.
        most: Maximum number of plans to show.
    """
    first = plans[:most]
    columns = [column for column in _COLUMNS if any(column[1](plan).text for plan in first)]
    rows = [
        (Cell(str(number)), *(cell(plan) for _, cell in columns))
        for number, plan in enumerate(first, 1)
    ]
    scope = f"The first {len(first)} of {len(plans)} plans" if most < len(plans) else "All plans"
    return Table(
        f"{scope}. The interval below a number contains eight in ten measurements.",
        (Column("#", numeric=True), *(column for column, _ in columns)),
        rows,
    )


def parts(rows: Iterable[Row]) -> Table:
    """Return a table of the parts of each plan's step time in milliseconds.

    Args:
        rows: Parts of the step times, as `rows.parts` returns them.
    """
    cells_of: dict[str, list[Cell]] = {}
    for row in rows:
        cells_of.setdefault(row["plan"], []).append(
            Cell(f"{row['ms']:,.2f}", f"{row['share']:.1%}")
        )
    columns = (Column("plan"), *(Column(name, numeric=True) for name in PARTS))
    lines = [(Cell(plan), *cells) for plan, cells in cells_of.items()]
    return Table("Milliseconds and shares of each part of a step", columns, lines, folded=True)


def front(rows: Iterable[Row], time: str, cost: str) -> Table:
    """Return a table of the plans on the Pareto front of time and cost, fastest first.

    Args:
        rows: Times and costs of the plans, as `rows.costs` returns them.
        time: Heading of the time column.
        cost: Heading of the cost column.
    """
    best = sorted((row for row in rows if row["front"]), key=lambda row: row["time_value"])
    lines = [(Cell(row["plan"]), _of(row, "time"), _of(row, "cost")) for row in best]
    columns = (Column("plan"), Column(time, numeric=True), Column(cost, numeric=True))
    return Table("Plans that no other plan beats in both time and cost", columns, lines)


def others(plan: Plan) -> Table:
    """Return a table of rejected strategies on a plan's hosts, with the reasons.

    Args:
        plan: Plan that was preferred.
    """
    lines = [
        (Cell(", ".join(strategy_words(other.strategy))), Cell(other.why)) for other in plan.others
    ]
    caption = f"Other strategies on {hardware(plan)}"
    return Table(caption, (Column("strategy"), Column("reason against it")), lines)


def fit(memory_fit: MemoryFit) -> Table:
    """Return a table of changes with which replicas of the whole model fit in memory.

    Args:
        memory_fit: Memory that a replica needs on the first plan's hosts, and changes that make it
            fit.
    """
    verdict = "it fits" if memory_fit.fits else "it does not fit"
    asked = (Cell("none"), Cell(memory(memory_fit.num_bytes)), Cell(""), Cell(verdict))
    lines = [
        (Cell(remedy.words), Cell(needed), Cell(seconds), Cell("it fits"))
        for remedy, (needed, seconds) in zip(memory_fit.remedies, remedies(memory_fit), strict=True)
    ]
    columns = (
        Column("change"), Column("memory", numeric=True), Column("step", numeric=True),
        Column("verdict"),
    )  # fmt: skip
    return Table(question(memory_fit), columns, [asked, *lines])


def losers(result: Result) -> list[Table]:
    """Return a table for each reason of rejection; hosts that were nearly accepted come first.

    Args:
        result: Ranked plans and rejected hosts, from a search.
    """
    columns = (Column("hardware"), Column("reason against it"), Column("cheapest change"))
    tables: list[Table] = []
    for group in _groups(result.losses):
        count = "1 plan" if len(group) == 1 else f"{len(group)} plans"
        changed = any(loss.change for loss in group)
        lines = [
            (Cell(loss.what), Cell(loss.why), *([Cell(loss.change)] if changed else []))
            for loss in group
        ]
        example = group[0].why
        caption = f"{count}, for example {group[0].what}: {example}"
        shown = columns if changed else columns[:2]
        tables.append(Table(caption, shown, lines, folded=len(lines) > _NEAREST))
    return tables


def _of(row: Row, name: str) -> Cell:
    value, bounds = rounded(Interval(row[f"{name}_value"], row[f"{name}_low"], row[f"{name}_high"]))
    return Cell(value, bounds)


def _hardware(plan: Plan) -> Cell:
    cluster = plan.machine.cluster
    where, between = hardware(plan), cluster.between
    # The name of a user's own host already contains its network.
    if plan.hosts > 1 and between is not None and not where.endswith(between.name):
        where = f"{where}, {between.name}"
    return Cell(f"{plan.devices} {cluster.device.name}", where)


def _strategy(plan: Plan) -> Cell:
    first, *others = strategy_words(plan.strategy)
    words = [*(word for word in others if not word.startswith("codec ")), plan.machine.precision]
    return Cell(first, ", ".join(words))


def _micro_batch(plan: Plan) -> Cell:
    count = plan.strategy.micro_batches
    return Cell(str(plan.strategy.micro_batch), f"{count} a step" if count > 1 else "")


def _time(interval: Interval | None) -> Cell:
    return Cell("") if interval is None else Cell(*duration(interval))


def _dollars(plan: Plan) -> Cell:
    """Return the cost of the whole training.

    If the length of the training is unknown, return the cost of an epoch, or of 1,000 steps if the
    size of an epoch is unknown too.
    """
    price = plan.machine.dollars_per_hour
    if price is None:
        return Cell("")
    rate, time, unit = price * plan.hosts / HOUR, plan.seconds, ""
    if time is None:
        time, unit = plan.seconds_per_epoch, " an epoch"
    if time is None:
        time, rate, unit = plan.seconds_per_step, rate * STEPS, " for 1,000 steps"
    value, bounds = rounded(Interval(time.value * rate, time.low * rate, time.high * rate))
    return Cell(f"${value}", bounds + unit)


def _memory(plan: Plan) -> Cell:
    value, bounds = gib(plan.memory)
    capacity = f"{bounds} of {plan.machine.cluster.device.memory_gib:.0f}"
    return Cell(value, f"{capacity}, tight" if plan.is_tight else capacity)


_COLUMNS: tuple[tuple[Column, _Cells], ...] = (
    (Column("hardware"), _hardware),
    (Column("strategy"), _strategy),
    (Column("micro-batch", numeric=True), _micro_batch),
    (Column("codec"), lambda plan: Cell(plan.strategy.codec)),
    (Column("step", numeric=True), lambda plan: _time(plan.seconds_per_step)),
    (Column("epoch", numeric=True), lambda plan: _time(plan.seconds_per_epoch)),
    (Column("target", numeric=True), lambda plan: _time(plan.seconds)),
    (Column("dollars", numeric=True), _dollars),
    (Column("memory", numeric=True), _memory),
    (Column("efficiency", numeric=True), lambda plan: Cell(*share(plan.efficiency))),
    (Column("MFU", numeric=True), lambda plan: Cell(*share(plan.mfu))),
    (Column("limited by"), lambda plan: Cell(plan.limit)),
)
