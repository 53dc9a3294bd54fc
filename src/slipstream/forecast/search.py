"""Finds ways to train a model within limits, and ranks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from slipstream.errors import UsageError
from slipstream.forecast.intervals import Intervals
from slipstream.forecast.job import Job, Precision
from slipstream.forecast.machines import Machine
from slipstream.forecast.memory import Peak, replay
from slipstream.forecast.parameters import Parameters
from slipstream.forecast.plan import Interval, Loss, Plan
from slipstream.forecast.resize import Resizable
from slipstream.forecast.stages import stage
from slipstream.forecast.step import Simulation, Step
from slipstream.forecast.strategy import Optimizer, Strategy
from slipstream.forecast.workload import Workload

# What a device's context and libraries take, outside of the allocator.
CONTEXT_BYTES = 600 << 20
# Trades of memory for time, the cheapest first: (zero, checkpoint).
_TRADES = ((0, False), (0, True), (1, False), (1, True), (3, False), (3, True))
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
        codec: of gradients between hosts.
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
    codec: str = "none"


@dataclass(frozen=True, slots=True)
class Result:
    """What a search found.

    Args:
        plans: the best first: cheapest where there are prices and a target, else fastest.
        losses: why others are not among them.
    """

    plans: tuple[Plan, ...]
    losses: tuple[Loss, ...]


@dataclass(slots=True)
class _Known:
    """What a search computed before."""

    simulations: dict[tuple[int, int, int], Simulation] = field(
        default_factory=dict[tuple[int, int, int], Simulation]
    )
    peaks: dict[Strategy, Peak] = field(default_factory=dict[Strategy, Peak])


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
    finder = _Finder(request, parameters, intervals)
    plans: list[Plan] = []
    losses: list[Loss] = []
    for done, (machine, hosts) in enumerate(sizes):
        progress(f"{hosts} x {machine.name}", done, len(sizes))
        found = finder.best(machine, hosts)
        if isinstance(found, Loss):
            losses.append(found)
        elif why := _misses(found, request):
            losses.append(Loss(_what(machine, hosts), why))
        else:
            plans.append(found)
    plans.sort(key=_rank)
    return Result(tuple(plans), tuple(losses))


def _hosts(machine: Machine, request: Request) -> Iterator[int]:
    """Powers of two of hosts, and the most that is allowed."""
    most = request.most_devices // machine.cluster.per_host
    if machine.cluster.between is None:
        most = min(most, 1)
    yield from _powers(most)
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


class _Finder:
    """Finds the best strategy on given hosts."""

    def __init__(self, request: Request, parameters: Parameters, intervals: Intervals) -> None:
        self._request = request
        self._parameters = parameters
        self._intervals = intervals
        self._known = _Known()

    def best(self, machine: Machine, hosts: int) -> Plan | Loss:
        """Returns the fastest strategy that fits in memory: all are simulated, and memory is
        replayed in the order of their times until one fits."""
        ranks = hosts * machine.cluster.per_host
        limit = machine.cluster.device.memory_gib * 2**30
        candidates = list(self._strategies(ranks, machine))
        held = {each: self._at_least(each) for each in candidates}
        timed = [(self._step(each, machine), each) for each in candidates if held[each] <= limit]
        for step, strategy in sorted(timed, key=lambda pair: pair[0].seconds):
            peak = self._peak(strategy)
            if peak.reserved <= limit:
                return self._plan(machine, hosts, strategy, step, peak)
        least = min(candidates, key=lambda each: (held[each], each.micro_batch), default=None)
        return Loss(_what(machine, hosts), self._why_not(machine, ranks, least))

    def _why_not(self, machine: Machine, ranks: int, least: Strategy | None) -> str:
        have = machine.cluster.device.memory_gib
        if least is None:
            return f"a batch of {self._request.global_batch} cannot be cut for {ranks} devices"
        needed = max(self._at_least(least), self._peak(least).reserved) / 2**30
        return (
            f"does not fit: {needed:.1f} GiB on each device at the least, of {have:.0f};"
            " take more devices or larger ones"
        )

    def _strategies(self, ranks: int, machine: Machine) -> Iterator[Strategy]:
        """Degrees of parallelism, micro-batches and what is traded for memory."""
        batch = self._request.global_batch
        for tensor, pipeline in self._degrees(ranks, machine):
            data = ranks // (tensor * pipeline)
            if batch % data:
                continue
            own = batch // data
            for micro in _micro_batches(own):
                if pipeline > 1 and own // micro < pipeline:
                    continue
                for zero, checkpoint in _TRADES:
                    if (zero and data == 1) or (zero == 3 and pipeline > 1):
                        continue
                    yield Strategy(
                        data=data, tensor=tensor, pipeline=pipeline, micro_batch=micro,
                        micro_batches=own // micro, zero=zero, checkpoint=checkpoint,
                        codec=self._request.codec,
                    )  # fmt: skip

    def _degrees(self, ranks: int, machine: Machine) -> Iterator[tuple[int, int]]:
        """Tensor ranks of one host and stages: both only for what has blocks and divides."""
        whole = self._simulation(1, 1, 1)
        per_host = machine.cluster.per_host
        for tensor in _powers(min(per_host, 8)):
            if per_host % tensor or not self._divides(tensor):
                continue
            for pipeline in _powers(min(whole.blocks, ranks // tensor, 64)):
                if ranks % (tensor * pipeline) == 0:
                    yield tensor, pipeline

    def _divides(self, tensor: int) -> bool:
        """Says whether so many ranks can share the model's products."""
        if tensor == 1:
            return True
        return self._simulation(1, tensor, 1).division.even

    def _at_least(self, strategy: Strategy) -> float:
        """Bytes of parameters, gradients and states that a device of a strategy holds at least."""
        simulation = self._simulation(1, strategy.tensor, 1)
        numbers = simulation.workload.num_parameters / strategy.pipeline
        shares = [strategy.data if strategy.zero >= level else 1 for level in (3, 2, 1)]
        states = self._request.optimizer.value
        return 4 * numbers * (1 / shares[0] + 1 / shares[1] + states / shares[2])

    def _simulation(self, micro: int, tensor: int, pipeline: int) -> Simulation:
        key = micro, tensor, pipeline
        known = self._known.simulations
        if key not in known:
            runtime = self._parameters.runtime(self._request.runtime)
            known[key] = Simulation(
                self._request.model.at(micro),
                tensor=tensor,
                pipeline=pipeline,
                flash=runtime.flash,
            )
        return known[key]

    def _peak(self, strategy: Strategy) -> Peak:
        if strategy not in self._known.peaks:
            micro, tensor, pipeline = strategy.micro_batch, strategy.tensor, strategy.pipeline
            simulation = self._simulation(micro, tensor, pipeline)
            # The first stage has most micro-batches in flight, the last one has the loss.
            peaks = [
                replay(
                    workload,
                    strategy,
                    optimizer=self._request.optimizer,
                    context_bytes=CONTEXT_BYTES,
                    in_flight=min(strategy.micro_batches, pipeline - number),
                    fused=True,
                )
                for number, workload in _ends(simulation, pipeline)
            ]
            self._known.peaks[strategy] = max(peaks, key=lambda peak: peak.reserved)
        return self._known.peaks[strategy]

    def _step(self, strategy: Strategy, machine: Machine) -> Step:
        simulation = self._simulation(strategy.micro_batch, strategy.tensor, strategy.pipeline)
        return simulation.run(self._job(strategy, machine))

    def _job(self, strategy: Strategy, machine: Machine) -> Job:
        request = self._request
        return Job(
            workload=request.model.at(strategy.micro_batch),
            strategy=strategy,
            cluster=machine.cluster,
            precision=request.precision,
            optimizer=request.optimizer,
            runtime=self._parameters.runtime(request.runtime),
            rates=self._parameters.rates,
            wire=self._parameters.wire,
        )

    def _plan(
        self, machine: Machine, hosts: int, strategy: Strategy, step: Step, peak: Peak
    ) -> Plan:
        request = self._request
        alone = self._step(
            Strategy(micro_batch=strategy.micro_batch, micro_batches=strategy.micro_batches),
            machine,
        )
        steps = None
        if request.samples_per_epoch is not None:
            steps = math.ceil(request.samples_per_epoch / request.global_batch)
        per_step = self._intervals.around(step.seconds, machine.cluster.device.name)
        epoch = _times(per_step, steps)
        total = _times(epoch, request.epochs)
        price = machine.dollars_per_hour
        dollars = _times(total, None if price is None else price * hosts / _HOUR)
        own = strategy.micro_batch * strategy.micro_batches / alone.seconds
        efficiency = request.global_batch / step.seconds / strategy.ranks / own
        return Plan(
            machine=machine, hosts=hosts, strategy=strategy, step=step, peak=peak,
            seconds_per_step=per_step, seconds_per_epoch=epoch, seconds=total, dollars=dollars,
            efficiency=efficiency, limit=_limit(step),
        )  # fmt: skip


def _ends(simulation: Simulation, pipeline: int) -> list[tuple[int, Workload]]:
    """The first and the last stage with what they run."""
    if pipeline == 1:
        return [(0, simulation.workload)]
    places = simulation.stage_of.tolist()
    return [(end, stage(simulation.workload, places, end)) for end in (0, pipeline - 1)]


def _powers(most: int) -> Iterator[int]:
    power = 1
    while power <= most:
        yield power
        power *= 2


def _micro_batches(own: int) -> list[int]:
    """Micro-batches that a replica's samples can be cut into, the largest first: those nearest to
    powers of two."""
    divisors = [parts for parts in range(1, own + 1) if own % parts == 0]
    near = {min(divisors, key=lambda each: (abs(each - power), each)) for power in _powers(own)}
    return sorted(near, reverse=True)


def _times(interval: Interval | None, factor: float | None) -> Interval | None:
    if interval is None or factor is None:
        return None
    return Interval(interval.value * factor, interval.low * factor, interval.high * factor)


def _limit(step: Step) -> str:
    parts = {
        "compute": step.compute,
        "network": step.tensor + step.exchange,
        "pipeline bubble": step.bubble,
        "host": step.host,
    }
    largest = max(parts, key=lambda name: parts[name])
    if largest == "compute" and step.moved > step.compute / 2:
        return "memory bandwidth"
    return largest
