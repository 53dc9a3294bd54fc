"""Finds ways to train a model within limits, and ranks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from slipstream.errors import UsageError
from slipstream.forecast.candidates import Allowed, powers
from slipstream.forecast.compute import peak
from slipstream.forecast.finder import Finder, Found, Refused
from slipstream.forecast.fitting import fit, shortages
from slipstream.forecast.intervals import Intervals
from slipstream.forecast.job import Alone, Precision
from slipstream.forecast.machines import Machine, memory_gib, several
from slipstream.forecast.parameters import Parameters
from slipstream.forecast.plan import Fit, Interval, Loss, Plan, limit_of
from slipstream.forecast.resize import Resizable
from slipstream.forecast.strategy import Optimizer
from slipstream.forecast.trials import DTYPES, Trials

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
        alone: what one device of the first machine was measured to do; None: it was not.
        input_rate: samples per second that a host reads and decodes; None: devices never wait.
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
    alone: Alone | None = None
    input_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What a search found.

    Args:
        plans: the best first: cheapest where there are prices and a target, else fastest.
        losses: why others are not among them.
        fit: whether replicas of the whole model fit on the first plan's hosts, and what to change;
            None: there is no plan, or they cannot share the batch.
    """

    plans: tuple[Plan, ...]
    losses: tuple[Loss, ...]
    fit: Fit | None = None


def search(
    request: Request,
    parameters: Parameters,
    intervals: Intervals,
    progress: Callable[[str, int, int], None] = lambda what, done, of: None,
    better: Callable[[Plan], None] = lambda plan: None,
) -> Result:
    """Returns ways to train, ranked. Blocks for seconds, at most about a minute.

    Args:
        request: what is asked.
        parameters: fitted.
        intervals: of errors met before.
        progress: told what is tried, how many were and how many there are.
        better: told each plan that ranks before all that were found until then.

    Raises:
        UsageError: nothing may be taken.
    """
    sizes = [(machine, hosts) for machine in request.machines for hosts in _hosts(machine, request)]
    if not sizes:
        raise UsageError("no machine is allowed; name some with --gpus or --clouds")
    trials = Trials(
        request.model, parameters, precision=request.precision, optimizer=request.optimizer,
        runtime=request.runtime, master=request.master, input_rate=request.input_rate,
    )  # fmt: skip
    if request.alone is not None:
        trials.keep_pace(request.alone, request.machines[0])
    finder = Finder(trials, request.global_batch, request.allowed)
    found: dict[int, Plan | Refused] = {}
    best: Plan | None = None
    promise = [_promise(request, parameters, *size) for size in sizes]
    order = sorted(range(len(sizes)), key=lambda index: promise[index])
    for done, index in enumerate(order):
        machine, hosts = sizes[index]
        progress(several(machine, hosts), done, len(sizes))
        tried = finder.best(machine, hosts)
        found[index] = tried if isinstance(tried, Refused) else _plan(request, intervals, tried)
        best = _better(request, best, found[index], better)
    return _result(request, trials, [(*sizes[index], found[index]) for index in range(len(sizes))])


def _promise(
    request: Request, parameters: Parameters, machine: Machine, hosts: int
) -> tuple[bool, float]:
    """What is tried first: hosts that hold the model, the most FLOPs for a dollar or a second."""
    devices = hosts * machine.cluster.per_host
    needed = 4 * (2 + request.optimizer.value) * request.model.traced[0].num_parameters
    rate, _ = peak(machine.cluster.device, DTYPES[request.precision], parameters.rates)
    price = machine.dollars_per_hour
    cost = 1.0 if price is None else price * hosts
    return memory_gib(machine, hosts) * 2**30 < needed, cost / (devices * rate)


def _better(
    request: Request, best: Plan | None, found: Plan | Refused, tell: Callable[[Plan], None]
) -> Plan | None:
    """The better of two, which is told if it is the new one."""
    if isinstance(found, Refused) or _misses(found, request):
        return best
    if best is not None and _rank(best) <= _rank(found):
        return best
    tell(found)
    return found


def _result(
    request: Request, trials: Trials, found: Sequence[tuple[Machine, int, Plan | Refused]]
) -> Result:
    """Ranks what was found on each number of each kind of hosts."""
    plans: list[Plan] = []
    losses: list[Loss] = []
    fitting: list[Plan] = []
    short: list[tuple[Machine, int, str]] = []
    for machine, hosts, each in found:
        if isinstance(each, Refused):
            if each.memory:
                short.append((machine, hosts, each.why))
            else:
                losses.append(Loss(several(machine, hosts), each.why))
            continue
        fitting.append(each)
        if why := _misses(each, request):
            losses.append(Loss(several(machine, hosts), why))
        else:
            plans.append(each)
    plans.sort(key=_rank)
    losses = [*shortages(short, fitting, trials, request.global_batch, request.allowed), *losses]
    first = plans[0] if plans else None
    if first is None:
        return Result((), tuple(losses))
    held = fit(trials, first.machine, first.hosts, request.global_batch)
    return Result(tuple(plans), tuple(losses), held)


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
    devices = found.strategy.ranks
    share = request.global_batch / step.seconds / devices / found.alone
    efficiency = intervals.of_efficiency(share, devices)
    if request.alone is None:
        per_step = intervals.around(step.seconds, request.group)
    else:
        # One device was measured; what is left to go wrong is the efficiency.
        alone = step.seconds * share
        per_step = Interval(step.seconds, alone / efficiency.high, alone / efficiency.low)
    epoch = _times(per_step, steps)
    total = _times(epoch, request.epochs)
    price = machine.dollars_per_hour
    dollars = _times(total, None if price is None else price * hosts / _HOUR)
    return Plan(
        machine=machine, hosts=hosts, strategy=found.strategy, step=step, peak=found.peak,
        seconds_per_step=per_step, seconds_per_epoch=epoch, seconds=total, dollars=dollars,
        memory=intervals.memory.around(found.peak.reserved),
        efficiency=efficiency,
        limit=limit_of(step), others=found.others,
    )  # fmt: skip


def _times(interval: Interval | None, factor: float | None) -> Interval | None:
    if interval is None or factor is None:
        return None
    return Interval(interval.value * factor, interval.low * factor, interval.high * factor)
