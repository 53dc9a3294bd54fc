"""What the charts of a forecast show, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.forecast.search.plan import Interval, Plan
from slipstream.units import GIB

Row = dict[str, Any]

HOUR = 3600.0
STEPS = 1000
# What a step's seconds are made of, in the order in which bars are stacked.
PARTS = (
    "arithmetic", "memory bandwidth", "tensor exchange", "pipeline bubble", "gradient exchange",
    "optimizer", "host", "input",
)  # fmt: skip
# What a device's memory is used for, in the order in which bars are stacked.
USES = (
    "parameters", "gradients", "states", "activations", "workspace", "communication",
    "context and gaps",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scale:
    """What time and cost are shown as.

    Args:
        time: title of an axis.
        cost: title of an axis.
        per: seconds of a unit of time.
        priced: cost is dollars; else it is hours of devices.
        target: the time is that to the target; else of a thousand steps.
    """

    time: str
    cost: str
    per: float
    priced: bool
    target: bool


def label(number: int, plan: Plan) -> str:
    """Returns what a plan is called in charts.

    Args:
        number: its rank, from 1.
        plan: any.
    """
    return f"{number}. {hardware(plan)}"


def hardware(plan: Plan) -> str:
    """Returns hosts and machine of a plan."""
    return f"{plan.hosts} x {plan.machine.name}"


def kind(plan: Plan) -> str:
    """Returns what a line of scaling is of: device, devices of a host and network."""
    cluster = plan.machine.cluster
    many = f"{cluster.per_host} x " if cluster.per_host > 1 else ""
    network = "no network" if cluster.between is None else cluster.between.name
    return f"{many}{cluster.device.name}, {network}"


def kinds(plans: Sequence[Plan]) -> list[str]:
    """Returns all kinds of plans, the best ranked first."""
    return list(dict.fromkeys(map(kind, plans)))


def scaling(plans: Sequence[Plan], shown: Sequence[str]) -> list[Row]:
    """Returns the efficiency of the best plan of each kind at each number of devices.

    Args:
        plans: ranked.
        shown: kinds that are wanted.
    """
    best: dict[tuple[str, int], tuple[int, Plan]] = {}
    for number, plan in enumerate(plans, 1):
        known = best.setdefault((kind(plan), plan.devices), (number, plan))
        if plan.efficiency.value > known[1].efficiency.value:
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


def scale(plans: Sequence[Plan]) -> Scale:
    """Returns how time and cost of plans are shown."""
    target = all(plan.seconds is not None for plan in plans)
    longest = max((_time(plan, target).value for plan in plans), default=0.0)
    word, per = ("hours", HOUR) if longest >= 2 * HOUR else ("minutes", 60.0)
    if longest < 120.0:
        word, per = "seconds", 1.0
    what = "to the target" if target else f"for {STEPS:,} steps"
    priced = all(plan.machine.dollars_per_hour is not None for plan in plans)
    cost = f"{'dollars' if priced else 'hours of devices'} {what}"
    return Scale(f"{word} {what}", cost, per, priced, target)


def costs(plans: Sequence[Plan], of: Scale) -> list[Row]:
    """Returns time and cost of all plans, with their intervals and who is on the front.

    Args:
        plans: ranked.
        of: how they are shown.
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
    """Returns where the time of each plan's step goes.

    Args:
        plans: ranked.
    """
    rows: list[Row] = []
    for number, plan in enumerate(plans, 1):
        step = plan.step
        seconds = (
            step.compute - step.moved, step.moved, step.tensor, step.bubble, step.exchange,
            step.optimizer, step.host, step.input,
        )  # fmt: skip
        for order, (name, each) in enumerate(zip(PARTS, seconds, strict=True)):
            rows.append(
                {
                    "plan": label(number, plan),
                    "part": name,
                    "order": order,
                    "ms": each * 1e3,
                    "share": each / sum(seconds),
                }
            )
    return rows


def memory(plans: Sequence[Plan]) -> list[Row]:
    """Returns what the fullest device's memory is used for, beside what the device has.

    Args:
        plans: ranked.
    """
    rows: list[Row] = []
    for number, plan in enumerate(plans, 1):
        peak = plan.peak
        held = (
            peak.parameters, peak.gradients, peak.states, peak.activations, peak.workspace,
            peak.communication, peak.reserved - peak.allocated,
        )  # fmt: skip
        for order, (name, each) in enumerate(zip(USES, held, strict=True)):
            rows.append(
                {
                    "plan": label(number, plan),
                    "use": name,
                    "order": order,
                    "gib": each / GIB,
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
    """Points than which no other one is better in one way and no worse in the other."""
    front: set[int] = set()
    least = float("inf")
    for index in sorted(range(len(points)), key=lambda each: points[each]):
        if points[index][1] < least:
            front.add(index)
            least = points[index][1]
    return front
