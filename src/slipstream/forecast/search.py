"""Finds ways to train a model within limits, and ranks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from slipstream.errors import UsageError
from slipstream.forecast.candidates import Allowed, powers
from slipstream.forecast.finder import Finder, Found
from slipstream.forecast.intervals import Intervals
from slipstream.forecast.job import Precision
from slipstream.forecast.machines import Machine
from slipstream.forecast.parameters import Parameters
from slipstream.forecast.plan import Interval, Loss, Plan, limit_of
from slipstream.forecast.resize import Resizable
from slipstream.forecast.strategy import Optimizer

_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked.

    Args:
        model: at any micro-batch.
        global_batch: samples per step.
        machines: that may be taken.
        most_devices: of a plan.
        samples_per_epoch: None: not known.
        epochs: to the target; None: not known.
        deadline: seconds to the target; None: none.
        budget: dollars to the target; None: none.
        precision: of products.
        optimizer: of parameters.
        runtime: name of the framework's.
        group: kind of model, as intervals know it; "": of no kind.
        master: parameters are in 16 bits, with copies in fp32 for the optimizer.
        allowed: strategies that change the numbers of training.
    """

    model: Resizable
    global_batch: int
    machines: Sequence[Machine]
    most_devices: int = 64
    samples_per_epoch: int | None = None
    epochs: float | None = None
    deadline: float | None = None
    budget: float | None = None
    precision: Precision = "fp32"
    optimizer: Optimizer = Optimizer.ADAM
    runtime: str = "pytorch2"
    group: str = ""
    master: bool = False
    allowed: Allowed = field(default_factory=Allowed)


@dataclass(frozen=True, slots=True)
class Result:
    """What a search found.

    Args:
        plans: the best first: cheapest where there are prices and a target, else fastest.
        losses: why others are not among them.
    """

    plans: tuple[Plan, ...]
    losses: tuple[Loss, ...]


def search(
    request: Request,
    parameters: Parameters,
    intervals: Intervals,
    progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> Result:
    """Returns ways to train, ranked. Blocks for seconds, at most about a minute.

    Args:
        request: what is asked.
        parameters: fitted.
        intervals: of errors met before.
        progress: told what is tried, how many were and how many there are.

    Raises:
        UsageError: nothing may be taken.
    """
    sizes = [(machine, hosts) for machine in request.machines for hosts in _hosts(machine, request)]
    if not sizes:
        raise UsageError("no machine is allowed; name some with --gpus or --clouds")
    finder = Finder(
        request.model, request.global_batch, parameters, precision=request.precision,
        optimizer=request.optimizer, runtime=request.runtime, master=request.master,
        allowed=request.allowed,
    )  # fmt: skip
    plans: list[Plan] = []
    losses: list[Loss] = []
    for done, (machine, hosts) in enumerate(sizes):
        progress(f"{hosts} x {machine.name}", done, len(sizes))
        found = finder.best(machine, hosts)
        if isinstance(found, str):
            losses.append(Loss(_what(machine, hosts), found))
            continue
        plan = _plan(request, intervals, found)
        if why := _misses(plan, request):
            losses.append(Loss(_what(machine, hosts), why))
        else:
            plans.append(plan)
    plans.sort(key=_rank)
    return Result(tuple(plans), tuple(losses))


def _hosts(machine: Machine, request: Request) -> Iterator[int]:
    """Powers of two of hosts, and the most that is allowed."""
    most = request.most_devices // machine.cluster.per_host
    if machine.cluster.between is None:
        most = min(most, 1)
    yield from powers(most)
    if most & (most - 1):
        yield most


def _rank(plan: Plan) -> tuple[float, float]:
    if plan.dollars is not None:
        return plan.dollars.value, plan.seconds_per_step.value
    rate = plan.machine.dollars_per_hour
    if rate is not None:
        return plan.seconds_per_step.value * rate * plan.hosts, plan.seconds_per_step.value
    return plan.seconds_per_step.value, 0.0


def _what(machine: Machine, hosts: int) -> str:
    return f"{hosts} x {machine.name}"


def _misses(plan: Plan, request: Request) -> str:
    seconds, dollars = plan.seconds, plan.dollars
    if seconds and request.deadline is not None and seconds.value > request.deadline:
        took, allowed = seconds.value / _HOUR, request.deadline / _HOUR
        return f"takes {took:.1f} h; the deadline is {allowed:.1f} h"
    if dollars and request.budget is not None and dollars.value > request.budget:
        return f"costs ${dollars.value:,.0f}; the budget is ${request.budget:,.0f}"
    return ""


def _plan(request: Request, intervals: Intervals, found: Found) -> Plan:
    machine, hosts, step = found.machine, found.hosts, found.step
    steps = None
    if request.samples_per_epoch is not None:
        steps = math.ceil(request.samples_per_epoch / request.global_batch)
    per_step = intervals.around(step.seconds, request.group)
    epoch = _times(per_step, steps)
    total = _times(epoch, request.epochs)
    price = machine.dollars_per_hour
    dollars = _times(total, None if price is None else price * hosts / _HOUR)
    efficiency = request.global_batch / step.seconds / found.strategy.ranks / found.alone
    return Plan(
        machine=machine, hosts=hosts, strategy=found.strategy, step=step, peak=found.peak,
        seconds_per_step=per_step, seconds_per_epoch=epoch, seconds=total, dollars=dollars,
        memory=intervals.memory.around(found.peak.reserved),
        efficiency=intervals.of_efficiency(efficiency, found.strategy.ranks),
        limit=limit_of(step), others=found.others,
    )  # fmt: skip


def _times(interval: Interval | None, factor: float | None) -> Interval | None:
    if interval is None or factor is None:
        return None
    return Interval(interval.value * factor, interval.low * factor, interval.high * factor)
