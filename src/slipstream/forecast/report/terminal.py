"""Tables and text of plans for a terminal.

The width of a number's interval determines how many digits are shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from slipstream.forecast.search.plan import Interval, Loss, Plan
from slipstream.forecast.search.search import Result
from slipstream.forecast.work.strategy import Agreement, Exchange, Strategy
from slipstream.units import GIB

_HOUR = 3600.0
# Units of time, longest first: name, seconds, and the number of units from which it is used.
_UNITS = (("days", 86400.0, 3.0), ("h", 3600.0, 2.0), ("min", 60.0, 2.0), ("s", 1.0, 1.0))
# Maximum number of rejected plans that are shown for each reason.
_NEAREST = 3
# Maximum number of hosts that a command names; more hosts are listed in a file.
_NAMED = 4
_NUMBER = re.compile(r"\$?\d[\d,]*(?:\.\d+)?")
_STEPS = 1000


def table(result: Result, most: int = 10) -> Table:
    """Return a table of the best plans for a console of 100 columns.

    The second line of a cell with a forecast is the interval in which eight in ten measurements
    lie. The lines under the efficiency show the model FLOPs utilisation (MFU) and the factor that
    limits the plan.

    Args:
        result: Ranked plans and rejected hosts, from a search.
        most: Maximum number of plans to show (default 10).
    """
    plans = result.plans[:most]
    shown = [column for column in _COLUMNS if any(column.of(plan)[0] for plan in plans)]
    plan_table = Table(box=None, padding=(0, 1, 1, 0), header_style="bold")
    plan_table.add_column("", justify="right", style="dim")
    for column in shown:
        plan_table.add_column(column.name, justify=column.justify, overflow="fold")
    for number, plan in enumerate(plans, 1):
        cells = (column.of(plan) for column in shown)
        plan_table.add_row(str(number), *(_cell(cell) for cell in cells))
    return plan_table


def corrections(plans: Sequence[Plan]) -> list[str]:
    """Return sentences about the corrections of plans by earlier runs.

    Args:
        plans: Plans that are shown.
    """
    by_device = {plan.machine.cluster.device.name: plan.correction for plan in plans[::-1]}
    lines: list[str] = []
    for device, earlier in reversed(by_device.items()):
        if earlier.observations:
            lines.append(
                f"corrected by {_runs(earlier.observations)} on {device}: seconds x"
                f" {earlier.factor:.2f} (--no-observations: without)"
            )
        if earlier.outdated:
            lines.append(
                f"{_runs(earlier.outdated)} on {device} had forecasts with other parameters or"
                " tables, so nothing is corrected by them"
            )
    return lines


def _runs(count: int) -> str:
    return f"{count} earlier run{'s' if count > 1 else ''}"


def losers(result: Result, most: int = 10) -> Group:
    """Return the reasons why rejected plans are not in the table; nearly accepted plans come first.

    Args:
        result: Ranked plans and rejected hosts, from a search.
        most: Maximum number of plans that `table` shows (default 10).
    """
    lines: list[Text | Padding] = []
    further = result.plans[most:]
    if further:
        lines.append(Text(_behind(result.plans[0], further)))
    for group in _groups(result.losses):
        for loss in group[:_NEAREST]:
            lines.append(
                Text("; ".join([f"{loss.what}: {loss.why}", *filter(None, [loss.change])]))
            )
        if len(group) > _NEAREST:
            more = Text(f"and {len(group) - _NEAREST} more like these", style="dim")
            lines.append(Padding(more, (0, 0, 0, 2)))
    return Group(*lines)


def strategy_words(strategy: Strategy) -> list[str]:
    """Return a description of a strategy, as a list of phrases.

    The first phrase contains the degrees of parallelism. The later phrases concern memory-saving
    methods and the gradient exchange.

    Args:
        strategy: Strategy to describe.
    """
    degrees = [
        f"{name} {count}"
        for name, count in (
            ("data", strategy.data),
            ("tensor", strategy.tensor),
            ("context", strategy.context),
            ("pipeline", strategy.pipeline),
        )
        if count > 1
    ]
    return [" x ".join(degrees) or "one device", *_trades(strategy), *_exchange(strategy)]


def _trades(strategy: Strategy) -> Iterator[str]:
    """Yield phrases about interleaving, sequence and expert parallelism, ZeRO and checkpoints."""
    if strategy.virtual > 1:
        yield f"{strategy.virtual} interleaved stages"
    if strategy.sequence:
        yield "sequence parallel"
    if strategy.expert > 1:
        yield f"experts over {strategy.expert}"
    if strategy.zero:
        yield f"ZeRO {strategy.zero}"
    if strategy.checkpoint:
        yield "checkpoints"


def _exchange(strategy: Strategy) -> Iterator[str]:
    """Yield phrases about the gradient exchange, unless it is one all-reduce per step."""
    if strategy.exchange is Exchange.PARAMETER_SERVER:
        count = strategy.servers
        yield f"parameter servers on {count or 'all'} host{'s' if count != 1 else ''}"
    if strategy.exchange is Exchange.LOCAL:
        yield f"local SGD, {strategy.period} steps"
    if strategy.across:
        yield "exchange across steps"
    for choice in Agreement:
        if count := sum(chosen is choice for _, chosen in strategy.layers):
            yield f"{count} layer{'s' if count > 1 else ''} {choice.value}"
    if strategy.codec != "none":
        yield f"codec {strategy.codec}"
    if strategy.bucket_bytes != Strategy().bucket_bytes:
        yield f"buckets of {strategy.bucket_bytes >> 20} MiB"


def launch_command(plan: Plan) -> str:
    """Return the command that starts a training script on a plan's hosts.

    The command has placeholders for the names of hosts; more than four hosts are read from a file.

    Args:
        plan: Plan to start.
    """
    per_host = plan.devices // plan.hosts
    if plan.hosts == 1:
        return f"slipstream run -n {per_host} train.py"
    if plan.hosts > _NAMED:
        return f"slipstream run -np {plan.devices} --hostfile hosts train.py"
    names = ",".join(f"host{number}" for number in range(1, plan.hosts + 1))
    return f"slipstream run -n {per_host} -H {names} train.py"


def rounded(interval: Interval) -> tuple[str, str]:
    """Return a number and its interval as two texts, rounded to suit the interval's width.

    Args:
        interval: Number and its interval, already in the unit in which they are printed.
    """
    width = interval.high - interval.low
    place = math.floor(math.log10(width / 5)) if width > 0 else -2
    numbers = (_to(place, bound) for bound in (interval.value, interval.low, interval.high))
    value, low, high = numbers
    return value, f"{low}-{high}"


def duration(interval: Interval) -> tuple[str, str]:
    """Return a duration and its interval as two texts in a suitable unit.

    Args:
        interval: Duration in seconds.
    """
    for unit, seconds, least in (*_UNITS, ("ms", 1e-3, 0.0)):
        if interval.value >= least * seconds:
            value, bounds = rounded(scaled(interval, 1 / seconds))
            return f"{value} {unit}", bounds
    raise AssertionError(interval)


def gib(interval: Interval) -> tuple[str, str]:
    """Return an amount of memory and its interval as two texts in GiB.

    Args:
        interval: Amount of memory in bytes.
    """
    shown = scaled(interval, 1 / GIB)
    digits = 1 if shown.high < 10 else 0
    return f"{shown.value:.1f} GiB", f"{shown.low:.{digits}f}-{shown.high:.{digits}f}"


def share(interval: Interval) -> tuple[str, str]:
    """Return a share and its interval as two texts in per cent.

    The text of the interval is "" if its bounds are equal.

    Args:
        interval: Share, where 1 is 100 %.
    """
    low, high = interval.low, interval.high
    return f"{interval.value:.0%}", "" if low == high else f"{100 * low:.0f}-{100 * high:.0f}%"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column, and a function that returns the lines of its cells."""

    name: str
    of: Callable[[Plan], Sequence[str]]
    justify: Any = "right"


def _hardware(plan: Plan) -> list[str]:
    cluster = plan.machine.cluster
    lines = [f"{plan.devices} {cluster.device.name}, {plan.machine.precision}"]
    hosts = f"{plan.hosts} x " if plan.hosts > 1 else ""
    if plan.machine.offer is not None:
        lines.append(hosts + plan.machine.name)
    elif hosts:
        lines.append(f"{plan.hosts} hosts")
    if plan.hosts > 1 and cluster.between is not None:
        lines.append(cluster.between.name)
    return lines


def _way(plan: Plan) -> list[str]:
    strategy = plan.strategy
    words = strategy_words(strategy)
    size, count = strategy.micro_batch, strategy.micro_batches
    batches = f"{count} x micro-batch {size}" if count > 1 else f"micro-batch {size}"
    return [words[0], *([", ".join(words[1:])] if words[1:] else []), batches]


def _duration(interval: Interval | None) -> Sequence[str]:
    return [""] if interval is None else duration(interval)


def dollars(plan: Plan) -> Sequence[str]:
    """Return the lines of a table cell: a plan's cost in dollars, its interval, and its unit.

    If the cost is that of the whole training, the unit is left out. If the length of the training
    is unknown, the cost is that of an epoch, or of 1,000 steps if the size of an epoch is unknown
    too.

    Args:
        plan: Plan to price.
    """
    price = plan.machine.dollars_per_hour
    if price is None:
        return [""]
    if plan.dollars is not None:
        interval, unit = plan.dollars, ""
    else:
        time, unit = plan.seconds_per_epoch, "/epoch"
        if time is None:
            time, unit = scaled(plan.seconds_per_step, _STEPS), "/1k steps"
        interval = scaled(time, price * plan.hosts / _HOUR)
    value, bounds = rounded(interval)
    return [f"${value}", bounds, *([unit] if unit else [])]


def _memory(plan: Plan) -> list[str]:
    value, bounds = gib(plan.memory)
    capacity = f"of {plan.machine.cluster.device.memory_gib:.0f}"
    return [value, bounds, f"{capacity}, tight" if plan.is_tight else capacity]


def _efficiency(plan: Plan) -> list[str]:
    value, bounds = share(plan.efficiency)
    mfu = f"MFU {share(plan.mfu)[0]}"
    return [value, *([bounds] if bounds else []), mfu, *plan.limit.split(" ")]


_COLUMNS = (
    _Column("hardware", _hardware, "left"),
    _Column("strategy", _way, "left"),
    _Column("step", lambda plan: _duration(plan.seconds_per_step)),
    _Column("epoch", lambda plan: _duration(plan.seconds_per_epoch)),
    _Column("target", lambda plan: _duration(plan.seconds)),
    _Column("dollars", dollars),
    _Column("memory", _memory),
    _Column("efficiency", _efficiency),
)


def _cell(lines: Sequence[str]) -> Text:
    text = Text(lines[0])
    for line in lines[1:]:
        text.append("\n" + line, style="dim")
    return text


def _to(place: int, value: float) -> str:
    return f"{round(value, -place):,.{max(0, -place)}f}"


def scaled(interval: Interval, factor: float) -> Interval:
    """Return a number and its interval, converted to a different unit.

    Args:
        interval: Number and its interval, in the old unit.
        factor: Number of new units in one old unit.
    """
    return Interval(interval.value * factor, interval.low * factor, interval.high * factor)


def _behind(first: Plan, further: Sequence[Plan]) -> str:
    """Return text that counts the plans after the table, and compares their cost and speed."""
    slower = sum(plan.seconds_per_step.value >= first.seconds_per_step.value for plan in further)
    count = f"{len(further)} more plans that fit" if len(further) > 1 else "1 more plan that fits"
    if first.machine.dollars_per_hour is None:
        return f"{count}: all are slower than the first"
    faster = len(further) - slower
    if not faster:
        return f"{count}: more expensive than these, and slower than the first"
    return f"{count}: more expensive than these; {faster} of them faster than the first"


def _groups(losses: Iterable[Loss]) -> list[list[Loss]]:
    """Group rejected plans whose reasons differ only in numbers; sort each group by `_distance`."""
    groups: dict[str, list[Loss]] = {}
    for loss in losses:
        groups.setdefault(_reason(loss), []).append(loss)
    return [sorted(group, key=_distance) for group in groups.values()]


def _reason(loss: Loss) -> str:
    return _NUMBER.sub("#", re.split("[:;]", loss.why)[0])


def _distance(loss: Loss) -> float:
    """Return how far hosts missed a limit, as |log(a / b)|.

    Here, a and b are the first and the last positive number in the reason for the rejection, such
    as the needed and the available GiB. Hosts with a small distance were nearly accepted.
    """
    numbers = [float(digits.strip("$").replace(",", "")) for digits in _NUMBER.findall(loss.why)]
    numbers = [number for number in numbers if number > 0]
    return abs(math.log(numbers[0] / numbers[-1])) if numbers else 0.0
