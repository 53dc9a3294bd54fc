"""Data rows for the charts of a forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.forecast.search.plan import Interval, Plan
from slipstream.units import GIB

Row = dict[str, Any]

HOUR = 3600.0
STEPS = 1000
# Parts of a step's time, in the order in which bars are stacked.
PARTS = (
    "arithmetic", "memory bandwidth", "tensor exchange", "pipeline bubble", "gradient exchange",
    "optimizer", "host", "input",
)  # fmt: skip
# Uses of a device's memory, in the order in which bars are stacked.
USES = (
    "parameters", "gradients", "states", "activations", "workspace", "communication",
    "context and gaps",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChartScale:
    """The units in which time and cost are shown.

    Args:
        time: Title of the time axis.
        cost: Title of the cost axis.
        per: Seconds in one unit of time.
        priced: Whether the unit of cost is dollars; otherwise it is device hours.
        target: Whether the time axis shows the time of the whole training; otherwise it shows the
            time of 1,000 steps.
    """

    time: str
    cost: str
    per: float
    priced: bool
    target: bool


def label(number: int, plan: Plan) -> str:
    """Return the label of a plan in charts.

    Args:
        number: Rank of the plan, from 1.
        plan: Plan to label.
    """
    return f"{number}. {hardware(plan)}"


def hardware(plan: Plan) -> str:
    """Return text with the number of hosts and the type of host of a plan."""
    return f"{plan.hosts} x {plan.machine.name}"


def kind(plan: Plan) -> str:
    """Return text that describes a plan's kind of machine: devices per host, and network."""
    cluster = plan.machine.cluster
    many = f"{cluster.per_host} x " if cluster.per_host > 1 else ""
    network = "no network" if cluster.between is None else cluster.between.name
    return f"{many}{cluster.device.name}, {network}"


def kinds(plans: Sequence[Plan]) -> list[str]:
    """Return the kinds of machines of all plans; the kind of the best plan comes first."""
    return list(dict.fromkeys(map(kind, plans)))


def scaling(plans: Sequence[Plan], shown: Sequence[str]) -> list[Row]:
    """Return the efficiency of the best plan for each kind of machine and number of devices.

    Args:
        plans: Ranked plans.
        shown: Kinds of machines to include.
    """
    best: dict[tuple[str, int], tuple[int, Plan]] = {}
    for number, plan in enumerate(plans, 1):
        previous = best.setdefault((kind(plan), plan.devices), (number, plan))
        if plan.efficiency.value > previous[1].efficiency.value:
            best[kind(plan), plan.devices] = number, plan
    return [
        {
            "kind": name,
            "devices": devices,
            "efficiency": round(plan.efficiency.value, 4),
            "low": round(plan.efficiency.low, 4),
            "high": round(plan.efficiency.high, 4),
            "plan": label(number, plan),
            "limit": plan.limit,
        }
        for (name, devices), (number, plan) in best.items()
        if name in shown
    ]


def scale(plans: Sequence[Plan]) -> ChartScale:
    """Return the units that suit the time and cost of plans."""
    target = all(plan.seconds is not None for plan in plans)
    longest = max((_time(plan, target).value for plan in plans), default=0.0)
    word, per = ("hours", HOUR) if longest >= 2 * HOUR else ("minutes", 60.0)
    if longest < 120.0:
        word, per = "seconds", 1.0
    period = "to the target" if target else f"for {STEPS:,} steps"
    priced = all(plan.machine.dollars_per_hour is not None for plan in plans)
    cost = f"{'dollars' if priced else 'device hours'} {period}"
    return ChartScale(f"{word} {period}", cost, per, priced, target)


def costs(plans: Sequence[Plan], of: ChartScale) -> list[Row]:
    """Return time and cost of each plan with intervals, and whether it is on the Pareto front.

    Args:
        plans: Ranked plans.
        of: Chart scale, which defines the units of time and cost.
    """
    rows: list[Row] = []
    for number, plan in enumerate(plans, 1):
        time = _time(plan, of.target)
        rate = (plan.machine.dollars_per_hour or 0.0) * plan.hosts if of.priced else plan.devices
        row: Row = {"plan": label(number, plan), "number": number, "kind": kind(plan)}
        for end in ("value", "low", "high"):
            seconds = getattr(time, end)
            row[f"time_{end}"] = seconds / of.per
            row[f"cost_{end}"] = seconds / HOUR * rate
        rows.append(row)
    first = _front([(row["time_value"], row["cost_value"]) for row in rows])
    return [{**row, "front": index in first} for index, row in enumerate(rows)]


def parts(plans: Sequence[Plan]) -> list[Row]:
    """Return the parts of each plan's step time.

    Args:
        plans: Ranked plans.
    """
    rows: list[Row] = []
    for number, plan in enumerate(plans, 1):
        step = plan.step
        seconds = (
            step.compute - step.moved, step.moved, step.tensor, step.bubble, step.exchange,
            step.optimizer, step.host, step.input,
        )  # fmt: skip
        for order, (name, part_seconds) in enumerate(zip(PARTS, seconds, strict=True)):
            rows.append(
                {
                    "plan": label(number, plan),
                    "part": name,
                    "order": order,
                    "ms": part_seconds * 1e3,
                    "share": part_seconds / sum(seconds),
                }
            )
    return rows


def memory(plans: Sequence[Plan]) -> list[Row]:
    """Return the memory of each plan's fullest device by purpose, and the device's capacity.

    Args:
        plans: Ranked plans.
    """
    rows: list[Row] = []
    for number, plan in enumerate(plans, 1):
        peak = plan.peak
        held = (
            peak.parameters, peak.gradients, peak.states, peak.activations, peak.workspace,
            peak.communication, peak.reserved - peak.allocated,
        )  # fmt: skip
        for order, (name, num_bytes) in enumerate(zip(USES, held, strict=True)):
            rows.append(
                {
                    "plan": label(number, plan),
                    "use": name,
                    "order": order,
                    "gib": num_bytes / GIB,
                    "has": plan.machine.cluster.device.memory_gib,
                    "low": plan.memory.low / GIB,
                    "high": plan.memory.high / GIB,
                }
            )
    return rows


def _time(plan: Plan, target: bool) -> Interval:
    if target and plan.seconds is not None:
        return plan.seconds
    step = plan.seconds_per_step
    return Interval(step.value * STEPS, step.low * STEPS, step.high * STEPS)


def _front(points: Sequence[tuple[float, float]]) -> set[int]:
    """Return the indices of the points that no other point beats in both values (Pareto front)."""
    front: set[int] = set()
    least = float("inf")
    for index in sorted(range(len(points)), key=lambda number: points[number]):
        if points[index][1] < least:
            front.add(index)
            least = points[index][1]
    return front
