"""Finds the fastest strategy on given hosts that fits in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slipstream.errors import UsageError
from slipstream.forecast import hybrid
from slipstream.forecast.candidates import Allowed, Shape, refinements, strategies
from slipstream.forecast.compute import peak as peak_flops
from slipstream.forecast.experts import count as count_experts
from slipstream.forecast.gradients import replicas
from slipstream.forecast.holding import least
from slipstream.forecast.job import Job, Precision
from slipstream.forecast.machines import Machine
from slipstream.forecast.memory import Peak, replay
from slipstream.forecast.network import reduce_scatter
from slipstream.forecast.parameters import Parameters
from slipstream.forecast.plan import Other, limit_of
from slipstream.forecast.resize import Resizable
from slipstream.forecast.stages import stage
from slipstream.forecast.step import Simulation, Step
from slipstream.forecast.strategy import Optimizer, Strategy
from slipstream.forecast.workload import Kind, Workload

# What a device's context and libraries take, outside of the allocator.
CONTEXT_BYTES = 600 << 20
# Strategies that are refined: the fastest ones that fit.
_REFINED = 2
# A strategy that is harder to run must be so much faster.
_GAIN = 0.99
# Share of a step that the exchange of gradients takes, from which layers get their own strategy.
_BOUND = 0.05
_PROBE = 1e8
# Shares of memory that layers may have, beside activations and buffers.
_ROOM = (0.7, 0.4, 0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The fastest strategy on some hosts.

    Args:
        machine: of every host.
        hosts: that it takes.
        strategy: over their devices.
        step: simulated whole.
        peak: of memory, on the fullest device.
        alone: samples per second of one device with the same micro-batch.
        others: the best strategy of each other kind, with why it lost.
    """

    machine: Machine
    hosts: int
    strategy: Strategy
    step: Step
    peak: Peak
    alone: float
    others: tuple[Other, ...]


class Finder:
    """Searches strategies; what was traced, simulated and replayed for one serves others.

    Args:
        model: at any micro-batch.
        global_batch: samples per step.
        parameters: fitted.
        precision: of products.
        optimizer: of parameters.
        runtime: name of the framework's.
        master: parameters are in 16 bits, with copies in fp32.
        allowed: strategies that change the numbers of training.
    """

    def __init__(
        self,
        model: Resizable,
        global_batch: int,
        parameters: Parameters,
        *,
        precision: Precision,
        optimizer: Optimizer,
        runtime: str,
        master: bool,
        allowed: Allowed,
    ) -> None:
        self._model = model
        self._batch = global_batch
        self._parameters = parameters
        self._precision: Precision = precision
        self._optimizer = optimizer
        self._runtime = parameters.runtime(runtime)
        self._master = master
        self._allowed = allowed
        self._simulations: dict[object, Simulation] = {}
        self._workloads: dict[object, Resizable] = {}
        self._peaks: dict[Strategy, Peak] = {}
        self._shape = self._shape_of(model.at(1))

    def _shape_of(self, workload: Workload) -> Shape:
        tokens = [op.products[0].m for op in workload.operators if op.kind is Kind.ATTENTION]
        return Shape(
            blocks=self._whole(Strategy(), 0).blocks,
            divides=self._divides,
            experts=count_experts(workload),
            tokens=max(tokens, default=0) if self._runtime.flash else 0,
        )

    def _divides(self, tensor: int) -> bool:
        return tensor == 1 or self._whole(Strategy(tensor=tensor), 0).division.even

    def best(self, machine: Machine, hosts: int) -> Found | str:
        """Returns the fastest strategy that fits in memory, or why none does.

        All are simulated, and memory is replayed in the order of their times until some fit; these
        are refined.

        Args:
            machine: of every host.
            hosts: all of whose devices are used.
        """
        ranks = hosts * machine.cluster.per_host
        limit = machine.cluster.device.memory_gib * 2**30
        candidates = list(
            strategies(self._shape, ranks, machine.cluster.per_host, self._batch, self._allowed)
        )
        held = {each: self._least(each) for each in candidates}
        timed = [(self._step(each, machine), each) for each in candidates if held[each] <= limit]
        fits: list[tuple[Step, Strategy]] = []
        for step, strategy in sorted(timed, key=_cost):
            if len(fits) < _REFINED and self._peak(strategy).reserved <= limit:
                fits.append((step, strategy))
        refined = [self._refined(step, each, machine, hosts, limit) for step, each in fits]
        refined += self._hybrid(candidates, held, machine, hosts)
        if not refined:
            smallest = min(
                candidates, key=lambda each: (held[each], each.micro_batch), default=None
            )
            return self._why_not(machine, ranks, smallest)
        step, strategy = min(refined, key=_cost)
        return Found(
            machine=machine, hosts=hosts, strategy=strategy, peak=self._peak(strategy),
            step=self._step(strategy, machine, whole=True), alone=self._alone(strategy, machine),
            others=self._others(timed, held, limit, (step, strategy)),
        )  # fmt: skip

    def _hybrid(
        self,
        candidates: Sequence[Strategy],
        held: Mapping[Strategy, float],
        machine: Machine,
        hosts: int,
    ) -> list[tuple[Step, Strategy]]:
        """Replicas with layers that have a strategy of their own, where that is faster and fits;
        without these they may be slow, or not fit."""
        limit = machine.cluster.device.memory_gib * 2**30
        plain = [each for each in candidates if _is_plain(each)]
        if not plain:
            return []
        fitting = [each for each in plain if held[each] <= limit]
        for start in fitting[:1] or plain:
            step = self._step(start, machine)
            if step.exchange < _BOUND * step.seconds:
                continue
            for room in _ROOM:
                layered = self._layered(start, machine, room * limit)
                if layered != start and self._fits(layered, limit):
                    step = self._step(layered, machine)
                    return [self._refined(step, layered, machine, hosts, limit)]
        return []

    def _fits(self, strategy: Strategy, limit: float) -> bool:
        return self._least(strategy) <= limit and self._peak(strategy).reserved <= limit

    def _others(
        self,
        timed: Sequence[tuple[Step, Strategy]],
        held: Mapping[Strategy, float],
        limit: float,
        taken: tuple[Step, Strategy],
    ) -> tuple[Other, ...]:
        """The best of each other kind: the fastest that may fit, or what comes nearest to it."""
        best: dict[object, Other] = {}
        for step, strategy in sorted(timed, key=lambda pair: pair[0].seconds):
            peak = self._known_peak(strategy)
            if peak is not None and peak.reserved > limit:
                best.setdefault(_kind(strategy), Other(strategy, _too_large(peak.reserved, limit)))
            else:
                slower = step.seconds / taken[0].seconds - 1
                why = f"{slower:.0%} slower; {limit_of(step)} limits it"
                best.setdefault(_kind(strategy), Other(strategy, why))
        for strategy in sorted(held, key=lambda each: held[each]):
            best.setdefault(_kind(strategy), Other(strategy, _too_large(held[strategy], limit)))
        return tuple(other for kind, other in best.items() if kind != _kind(taken[1]))

    def _why_not(self, machine: Machine, ranks: int, least: Strategy | None) -> str:
        have = machine.cluster.device.memory_gib
        if least is None:
            return f"a batch of {self._batch} cannot be cut for {ranks} devices"
        needed = max(self._least(least), self._peak(least).reserved) / 2**30
        return (
            f"does not fit: {needed:.1f} GiB on each device at the least, of {have:.0f};"
            " take more devices or larger ones"
        )

    def _refined(
        self, step: Step, strategy: Strategy, machine: Machine, hosts: int, limit: float
    ) -> tuple[Step, Strategy]:
        """Changes one thing after another, as long as that is faster and fits."""
        for number in range(len(refinements(strategy, self._shape, hosts, self._allowed))):
            rounds = refinements(strategy, self._shape, hosts, self._allowed)
            for other in rounds[number] if number < len(rounds) else ():
                step, strategy = self._faster(step, strategy, other, machine, limit)
        return step, strategy

    def _faster(
        self, step: Step, strategy: Strategy, other: Strategy, machine: Machine, limit: float
    ) -> tuple[Step, Strategy]:
        if other == strategy:
            return step, strategy
        tried = self._step(other, machine)
        if tried.seconds < _GAIN * step.seconds and self._peak(other).reserved <= limit:
            return tried, other
        return step, strategy

    def _layered(self, strategy: Strategy, machine: Machine, room: float) -> Strategy:
        """Replicas with what is best done with each layer, in so many bytes."""
        job = self._job(strategy, machine)
        group = replicas(job)
        share = (strategy.data - 1) / strategy.data
        rate = share * _PROBE / reduce_scatter(_PROBE, group, job.wire)
        name = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}.get(
            self._precision, self._precision
        )
        flops, _ = peak_flops(machine.cluster.device, name, job.rates)
        layers = list(self._simulation(strategy).passing.layers.values())
        options = [
            hybrid.options(
                layer, strategy.data, rate, sum(each.latency for each in group),
                flops_per_second=flops,
            )
            for layer in layers
        ]  # fmt: skip
        try:
            chosen = zip(layers, hybrid.choose(options, room), strict=True)
        except UsageError:
            return strategy
        found = [(layer.name, option.choice) for layer, option in chosen]
        return replace(
            strategy, layers=tuple((name, choice) for name, choice in found if choice is not None)
        )

    def _least(self, strategy: Strategy) -> float:
        return least(self._simulation(strategy), strategy, self._optimizer, master=self._master)

    def _simulation(self, strategy: Strategy) -> Simulation:
        """The simulation of a strategy: of the two traced micro-batches, divided, then cut into
        stages, then resized, each kept."""
        share = self._model.share(strategy.micro_batch, strategy.context)
        key = (*_divided(strategy), strategy.pipeline, strategy.virtual, share)
        if key not in self._simulations:
            small, large = (self._staged(strategy, which) for which in (0, 1))
            self._simulations[key] = small.resized(large, share)
        return self._simulations[key]

    def _staged(self, strategy: Strategy, which: int) -> Simulation:
        key = (*_divided(strategy), strategy.pipeline, strategy.virtual, which, "traced")
        if key not in self._simulations:
            whole = self._whole(strategy, which)
            self._simulations[key] = whole.staged(strategy.pipeline, strategy.virtual, even=False)
        return self._simulations[key]

    def _whole(self, strategy: Strategy, which: int) -> Simulation:
        key = (*_divided(strategy), which)
        if key not in self._simulations:
            self._simulations[key] = Simulation(
                self._model.traced[which],
                tensor=strategy.tensor,
                sequence=strategy.sequence,
                expert=strategy.expert,
                flash=self._runtime.flash,
            )
        return self._simulations[key]

    def _workload(self, strategy: Strategy) -> Workload:
        """What a rank runs, but for stages."""
        key = _divided(strategy)
        if key not in self._workloads:
            small, large = (self._whole(strategy, which).workload for which in (0, 1))
            self._workloads[key] = Resizable(small, large)
        return self._workloads[key].at(strategy.micro_batch, strategy.context)

    def _peak(self, strategy: Strategy) -> Peak:
        key = _remembered(strategy)
        if key not in self._peaks:
            simulation = self._simulation(strategy)
            ranks = _fullest(simulation)
            peaks = [self._replayed(simulation, strategy, rank) for rank in ranks]
            self._peaks[key] = max(peaks, key=lambda peak: peak.reserved)
        return self._peaks[key]

    def _known_peak(self, strategy: Strategy) -> Peak | None:
        return self._peaks.get(_remembered(strategy))

    def _replayed(self, simulation: Simulation, strategy: Strategy, rank: int) -> Peak:
        workload = self._workload(strategy)
        if strategy.pipeline > 1:
            workload = stage(workload, simulation.rank_of.tolist(), rank)
        workload = hybrid.shared_out(workload, strategy)
        # States of experts are shared out by those only that have the same ones.
        alike = max(1, strategy.data * strategy.context // strategy.expert)
        return replay(
            workload,
            replace(strategy, data=alike, context=1, expert=1, layers=()),
            optimizer=self._optimizer,
            master=self._master,
            context_bytes=CONTEXT_BYTES,
            in_flight=_in_flight(strategy, rank),
            fused=True,
        )

    def _step(self, strategy: Strategy, machine: Machine, *, whole: bool = False) -> Step:
        return self._simulation(strategy).run(self._job(strategy, machine), whole=whole)

    def _alone(self, strategy: Strategy, machine: Machine) -> float:
        """Samples per second of one device that runs the same micro-batches."""
        own = Strategy(micro_batch=strategy.micro_batch, micro_batches=strategy.micro_batches)
        return own.global_batch / self._step(own, machine).seconds

    def _job(self, strategy: Strategy, machine: Machine) -> Job:
        return Job(
            workload=self._model.traced[0],
            strategy=strategy,
            cluster=machine.cluster,
            precision=self._precision,
            optimizer=self._optimizer,
            runtime=self._runtime,
            rates=self._parameters.rates,
            wire=self._parameters.wire,
            gradient_bytes=2 if self._master else 4,
        )


def _cost(pair: tuple[Step, Strategy]) -> float:
    """Seconds; each thing that makes a strategy harder to run must gain something."""
    step, strategy = pair
    degrees = (strategy.tensor, strategy.context, strategy.pipeline, strategy.expert)
    harder = sum(degree > 1 for degree in degrees) + bool(strategy.zero) + strategy.checkpoint
    return step.seconds * (2 - _GAIN) ** harder


def _divided(strategy: Strategy) -> tuple[int, int, bool]:
    return strategy.tensor, strategy.expert, strategy.sequence


def _remembered(strategy: Strategy) -> Strategy:
    """A strategy without what memory does not depend on."""
    return replace(strategy, across=False, servers=0, codec="none")


def _too_large(num_bytes: float, limit: float) -> str:
    return f"does not fit: {num_bytes / 2**30:.1f} GiB of {limit / 2**30:.0f}"


def _is_plain(strategy: Strategy) -> bool:
    """Says whether replicas share nothing out."""
    degrees = (strategy.tensor, strategy.pipeline, strategy.context, strategy.expert)
    return strategy.data > 1 and max(degrees) == 1 and not strategy.zero and not strategy.checkpoint


def _kind(strategy: Strategy) -> tuple[bool, ...]:
    return (
        strategy.tensor > 1, strategy.context > 1, strategy.pipeline > 1, strategy.expert > 1,
        strategy.zero == 3, strategy.checkpoint, bool(strategy.layers),
    )  # fmt: skip


def _fullest(simulation: Simulation) -> set[int]:
    """Ranks of a pipeline of which one is the fullest: the first one has most micro-batches in
    flight, the last one has the loss, and another may have most parameters."""
    numbers = [0] * simulation.ranks
    for each in simulation.workload.parameters:
        numbers[int(simulation.rank_of[each.ready])] += each.elements
    heaviest = numbers.index(max(numbers))
    return {0, simulation.ranks - 1} | ({heaviest} if numbers[heaviest] > 2 * numbers[0] else set())


def _in_flight(strategy: Strategy, rank: int) -> int:
    """Micro-batches whose activations a rank of a pipeline holds at once."""
    after = strategy.pipeline - rank - 1
    if strategy.virtual == 1:
        return min(strategy.micro_batches, after + 1)
    chunks = 2 * after + (strategy.virtual - 1) * strategy.pipeline + 1
    return min(strategy.micro_batches, -(-chunks // strategy.virtual))
