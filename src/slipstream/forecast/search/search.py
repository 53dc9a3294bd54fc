"""Search for ways to train a model within the user's limits, and ranking of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from slipstream.errors import UsageError
from slipstream.forecast.observed.correction import Correction, correction
from slipstream.forecast.observed.file import RunObservation
from slipstream.forecast.observed.kind import kind_of, setup_of
from slipstream.forecast.options import ForecastOptions
from slipstream.forecast.search.candidates import Allowed, powers
from slipstream.forecast.search.intervals import Intervals, group_of
from slipstream.forecast.search.machines import HostType, memory_gib, several
from slipstream.forecast.search.memory_fit import fit, shortages
from slipstream.forecast.search.plan import Interval, Loss, MemoryFit, Plan, limit_of
from slipstream.forecast.search.strategy_search import BestStrategy, Infeasible, StrategySearch
from slipstream.forecast.search.trials import DTYPES, Trials
from slipstream.forecast.simulate.compute import peak
from slipstream.forecast.simulate.job import MeasuredDevice, Precision
from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.work.resize import Resizable
from slipstream.forecast.work.strategy import Optimizer
from slipstream.forecast.work.workload import TrainingPhase
from slipstream.units import GIB

_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """Input of a search: the options, and the values that were derived from them.

    Args:
        options: Options of the forecast, already validated.
        model: Function that takes a precision and returns the model, which can be resized to any
            micro-batch. The first call of the function with a precision may block for seconds.
        machines: Types of hosts that may be used.
        steps_per_epoch: Steps per epoch; None if unknown.
        steps: Number of steps of the whole training; None if unknown.
        master_copies: Precisions in which parameters are stored in 16 bits, with master copies in
            fp32 for the optimizer.
        observations: Observations of earlier runs, which correct the durations.
    """

    options: ForecastOptions
    model: Callable[[Precision], Resizable]
    machines: Sequence[HostType]
    steps_per_epoch: int | None = None
    steps: float | None = None
    master_copies: frozenset[Precision] = frozenset()
    observations: Sequence[RunObservation] = ()

    @property
    def optimizer(self) -> Optimizer:
        """Optimizer that updates the parameters."""
        return Optimizer[self.options.optimizer.upper()]

    @property
    def allowed(self) -> Allowed:
        """Allowed strategies that change the arithmetic of training."""
        return Allowed(codec=self.options.codec, period=self.options.local_steps)


@dataclass(frozen=True, slots=True)
class Result:
    """Ranked plans and rejected hosts, which a search returns.

    Args:
        plans: Plans, best first: cheapest if prices are known, else fastest.
        losses: Rejected hosts, with the reasons.
        fit: Memory that a replica of the whole model needs on the hosts of the first plan, and
            changes that make it fit; None if there is no plan, or if the replicas cannot divide the
            batch equally.
        steps: Number of steps of the whole training; None if unknown.
    """

    plans: tuple[Plan, ...]
    losses: tuple[Loss, ...]
    fit: MemoryFit | None = None
    steps: float | None = None


def search(
    request: SearchRequest,
    parameters: Parameters,
    intervals: Intervals,
    progress: Callable[[str, int, int], None] = lambda action, done, total: None,
    better: Callable[[Plan], None] = lambda plan: None,
    is_over: Callable[[], bool] = lambda: False,
) -> Result:
    """Return ranked ways to train a model.

    The call usually blocks for a few seconds, and for the largest models for about a minute.

    Args:
        request: Options of the forecast, and the values that were derived from them.
        parameters: Calibrated parameters.
        intervals: Factors from a forecast to its prediction interval.
        progress: Callback that receives the name of the hosts that are tried now, the number of
            completed search steps, and the total number of search steps (default: none).
        better: Callback that receives each plan that is better than all plans found before it
            (default: none).
        is_over: Function that returns whether the time limit has passed. When the limit has passed
            and a plan exists, the search ends and rejects the remaining hosts (default: no limit).

    Raises:
        UsageError: The options allow no type of host.
    """
    sizes = [(machine, hosts) for machine in request.machines for hosts in _hosts(machine, request)]
    if not sizes:
        raise UsageError(
            "no host is allowed; set gpus, clouds or max_devices so that at least one is"
        )
    trials_of = _trials(request, parameters)
    outcomes: dict[int, Plan | Infeasible] = {}
    best: Plan | None = None
    needed = _least_bytes(request)
    promise = [_promise(request, parameters, needed, *size) for size in sizes]
    order = sorted(range(len(sizes)), key=lambda index: promise[index])
    for done, index in enumerate(order):
        if best is not None and is_over():
            break
        machine, hosts = sizes[index]
        progress(several(machine, hosts), done, len(sizes))
        finder = StrategySearch(
            trials_of(machine.precision), request.options.batch, request.allowed
        )
        answer = finder.best(machine, hosts)
        outcomes[index] = (
            answer
            if isinstance(answer, Infeasible)
            else _plan(request, parameters, intervals, answer)
        )
        best = _better(request, best, outcomes[index], better)
    tried = [(*sizes[index], outcomes[index]) for index in range(len(sizes)) if index in outcomes]
    left = [several(*sizes[index]) for index in order[len(outcomes) :]]
    result = _result(request, trials_of, tried)
    return replace(result, losses=(*result.losses, *_not_tried(left)))


def _not_tried(left: Sequence[str]) -> list[Loss]:
    """Return a rejection for each group of hosts that was not tried before the time limit."""
    why = "not tried: the time limit of the search had passed, and other hosts were more promising"
    return [Loss(hosts, why, "a longer search time") for hosts in left]


def _trials(request: SearchRequest, parameters: Parameters) -> Callable[[Precision], Trials]:
    """Return a function that creates and caches the simulations of the model in a precision."""

    @cache
    def trials_of(precision: Precision) -> Trials:
        trials = Trials(
            request.model(precision), parameters, precision=precision, optimizer=request.optimizer,
            runtime=request.options.runtime, master=precision in request.master_copies,
            input_rate=request.options.input_rate,
        )  # fmt: skip
        if request.options.alone is not None:
            trials.keep_pace(MeasuredDevice(*request.options.alone), request.machines[0])
        return trials

    return trials_of


def _least_bytes(request: SearchRequest) -> float:
    """Return the bytes of parameters, gradients and optimizer states in fp32.

    The model is traced in the precision of the fastest devices. The fastest devices are probably
    tried first, so the search reuses the trace.
    """
    fastest = max(
        request.machines,
        key=lambda machine: max(machine.cluster.device.tflops.values()),
    )
    numbers = request.model(fastest.precision).traced[0].num_parameters
    return 4 * (2 + request.optimizer.value) * numbers


def _promise(
    request: SearchRequest, parameters: Parameters, needed: float, machine: HostType, hosts: int
) -> tuple[bool, float]:
    """Return a key that sorts hosts with enough memory first, and then by cost per FLOP."""
    devices = hosts * machine.cluster.per_host
    rate, _ = peak(machine.cluster.device, DTYPES[machine.precision], parameters.rates)
    price = machine.dollars_per_hour
    cost = 1.0 if price is None else price * hosts
    return memory_gib(machine, hosts) * GIB < needed, cost / (devices * rate)


def _better(
    request: SearchRequest,
    best: Plan | None,
    outcome: Plan | Infeasible,
    report: Callable[[Plan], None],
) -> Plan | None:
    """Return the better of two plans; call `report` if the new plan is better."""
    if isinstance(outcome, Infeasible) or _misses(outcome, request):
        return best
    if best is not None and _rank(best) <= _rank(outcome):
        return best
    report(outcome)
    return outcome


def _result(
    request: SearchRequest,
    trials_of: Callable[[Precision], Trials],
    outcomes: Sequence[tuple[HostType, int, Plan | Infeasible]],
) -> Result:
    """Rank the plans of all hosts and explain the rejections."""
    plans: list[Plan] = []
    losses: list[Loss] = []
    fitting: list[Plan] = []
    short: list[tuple[HostType, int, str]] = []
    for machine, hosts, outcome in outcomes:
        if isinstance(outcome, Infeasible):
            if outcome.memory:
                short.append((machine, hosts, outcome.why))
            else:
                losses.append(Loss(several(machine, hosts), outcome.why))
            continue
        fitting.append(outcome)
        if why := _misses(outcome, request):
            losses.append(Loss(several(machine, hosts), why))
        else:
            plans.append(outcome)
    plans.sort(key=_rank)
    losses = [
        *shortages(short, fitting, trials_of, request.options.batch, request.allowed),
        *losses,
    ]
    first = plans[0] if plans else None
    memory_fit = None
    if first is not None:
        trials = trials_of(first.machine.precision)
        memory_fit = fit(trials, first.machine, first.hosts, request.options.batch)
    return Result(tuple(plans), tuple(losses), memory_fit, request.steps)


def _hosts(machine: HostType, request: SearchRequest) -> Iterator[int]:
    """Yield the numbers of hosts to try: all powers of two, and the maximum."""
    most = request.options.max_devices // machine.cluster.per_host
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


def _misses(plan: Plan, request: SearchRequest) -> str:
    seconds, dollars = plan.seconds, plan.dollars
    if (
        seconds
        and request.options.deadline is not None
        and seconds.value > request.options.deadline
    ):
        took, allowed = seconds.value / _HOUR, request.options.deadline / _HOUR
        return f"takes {took:.1f} h; the deadline is {allowed:.1f} h"
    if dollars and request.options.budget is not None and dollars.value > request.options.budget:
        return f"costs ${dollars.value:,.0f}; the budget is ${request.options.budget:,.0f}"
    return ""


def _plan(
    request: SearchRequest, parameters: Parameters, intervals: Intervals, best: BestStrategy
) -> Plan:
    machine, hosts, step = best.machine, best.hosts, best.step
    model = request.model(machine.precision)
    devices = best.strategy.ranks
    share = request.options.batch / step.seconds / devices / best.alone
    efficiency = intervals.of_efficiency(share, devices)
    if request.options.alone is None:
        per_step = intervals.around(step.seconds, group_of(model.traced[0]))
    else:
        # One device was measured, so only the efficiency is uncertain.
        alone = step.seconds * share
        per_step = Interval(step.seconds, alone / efficiency.high, alone / efficiency.low)
    kind = kind_of(model.traced[0], machine, request.options, parameters)
    setup = setup_of(machine, hosts, request.options.batch)
    widths = intervals.widths(group_of(model.traced[0]))
    earlier = correction(request.observations, kind, setup, widths)
    per_step = _corrected(per_step, earlier)
    total = _times(per_step, request.steps)
    price = machine.dollars_per_hour
    dollars = _times(total, None if price is None else price * hosts / _HOUR)
    return Plan(
        machine=machine, hosts=hosts, strategy=best.strategy, step=step, peak=best.peak,
        seconds_per_step=per_step, seconds_per_epoch=_times(per_step, request.steps_per_epoch),
        seconds=total, dollars=dollars, memory=intervals.memory.around(best.peak.reserved),
        efficiency=efficiency, mfu=_mfu(request, best, per_step),
        limit=limit_of(step), kind=kind, setup=setup, correction=earlier, others=best.others,
    )  # fmt: skip


def _corrected(interval: Interval, by: Correction) -> Interval:
    value = interval.value
    low, high = by.seconds(value, interval.low), by.seconds(value, interval.high)
    return Interval(by.seconds(value, value), low, high)


def _mfu(request: SearchRequest, best: BestStrategy, seconds: Interval) -> Interval:
    """Return the model FLOPs utilisation: the model's required FLOP rate over the peak rate.

    The backward pass counts as two forward passes, and attention counts as if each token attended
    to all tokens. Recomputation does not count.

    Source: Chowdhery et al. 2022, "PaLM", arXiv 2204.02311, section 4.1 and appendix B.
    """
    machine = best.machine
    traced = request.model(machine.precision).traced[0]
    flops = 3 * traced.flops(TrainingPhase.FORWARD) / traced.samples * request.options.batch
    tflops = machine.cluster.device.tflops
    peak = tflops.get(DTYPES[machine.precision], tflops["float32"]) * 1e12
    share = flops / (peak * best.strategy.ranks)
    return Interval(share / seconds.value, share / seconds.high, share / seconds.low)


def _times(interval: Interval | None, factor: float | None) -> Interval | None:
    if interval is None or factor is None:
        return None
    return Interval(interval.value * factor, interval.low * factor, interval.high * factor)
