"""Cached simulations, step times and memory peaks of strategies for one model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from slipstream.errors import UsageError
from slipstream.forecast.memory import FullError, PeakMemory, ReplayOptions, replay
from slipstream.forecast.search.candidates import ModelShape
from slipstream.forecast.search.machines import HostType
from slipstream.forecast.search.memory_bound import (
    LowerBound,
    PipelineCut,
    cut,
    floor,
    in_flight,
    least,
    shared_out,
)
from slipstream.forecast.simulate import hybrid
from slipstream.forecast.simulate.compute import peak as peak_flops
from slipstream.forecast.simulate.gradients import replicas
from slipstream.forecast.simulate.job import MeasuredDevice, Precision, TrainingJob
from slipstream.forecast.simulate.network import Cluster, reduce_scatter
from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.simulate.simulation import Simulation
from slipstream.forecast.simulate.step import SimulatedStep
from slipstream.forecast.work.experts import count as count_experts
from slipstream.forecast.work.resize import Resizable
from slipstream.forecast.work.stages import stage
from slipstream.forecast.work.strategy import Optimizer, Strategy
from slipstream.forecast.work.workload import OperatorKind, Workload
from slipstream.units import GIB, MIB

# Names of data types by precision.
DTYPES: Mapping[Precision, str] = {
    "fp32": "float32", "tf32": "tf32", "fp16": "float16", "bf16": "bfloat16",
}  # fmt: skip
# Size in bytes of the reduce-scatter from whose time the rate for the exchange of single layers is
# computed. It is so large that latency hardly counts.
_PROBE = 1e8
# The memory of the first and the last pipeline rank is replayed if its lower bound is at least this
# share of the largest lower bound of a rank. All ranks of 145 pipelines of six models were
# replayed. In 3 pipelines the first or last rank was fuller than the rank with the largest lower
# bound, and its own bound was at least 0.97 of the largest.
_NEARLY = 0.9

_Degrees = tuple[int, int, bool]  # tensor ranks, expert ranks, whether sequences are divided
_Stages = tuple[int, int]  # pipeline ranks, stages of each rank


class Trials:
    """Cached simulations of strategies for one model; strategies share intermediate results.

    Args:
        model: Model, which can be resized to any micro-batch size.
        parameters: Calibrated parameters.
        precision: Data type of matrix products.
        optimizer: Optimizer of the parameters.
        runtime: Name of the framework.
        master: Whether parameters are stored in 16 bits, with master copies in fp32.
        input_rate: Samples per second that one host reads and decodes (default None: unlimited).
    """

    def __init__(
        self,
        model: Resizable,
        parameters: Parameters,
        *,
        precision: Precision,
        optimizer: Optimizer,
        runtime: str,
        master: bool,
        input_rate: float | None = None,
    ) -> None:
        self._model = model
        self._parameters = parameters
        self._precision: Precision = precision
        self._optimizer = optimizer
        self._runtime = parameters.runtime(runtime)
        self._master = master
        self._input_rate = input_rate
        self._pace = 1.0
        self._divided: dict[tuple[_Degrees, int], Simulation] = {}
        self._staged: dict[tuple[_Degrees, _Stages, int], Simulation] = {}
        self._simulations: dict[tuple[_Degrees, _Stages, float], Simulation] = {}
        self._workloads: dict[_Degrees, Resizable] = {}
        self._traced_floors: dict[tuple[_Degrees, int], LowerBound] = {}
        self._floors: dict[tuple[_Degrees, float], LowerBound] = {}
        self._traced_cuts: dict[tuple[_Degrees, _Stages, int], PipelineCut] = {}
        self._cuts: dict[tuple[_Degrees, _Stages, float], PipelineCut] = {}
        self._peaks: dict[Strategy, PeakMemory] = {}
        # Memory limits in bytes, without the context, that strategies were found to exceed.
        self._exceeded: dict[Strategy, float] = {}
        self._steps: dict[object, SimulatedStep] = {}
        self.shape = self._shape_of(model.at(1))

    def _shape_of(self, workload: Workload) -> ModelShape:
        tokens = [
            op.products[0].m for op in workload.operators if op.kind is OperatorKind.ATTENTION
        ]
        return ModelShape(
            blocks=self._unstaged(Strategy(), 0).blocks,
            divides=self._divides,
            experts=count_experts(workload),
            tokens=max(tokens, default=0) if self._runtime.flash else 0,
        )

    def _divides(self, tensor: int) -> bool:
        return tensor == 1 or self._unstaged(Strategy(tensor=tensor), 0).division.even

    def least(self, strategy: Strategy) -> float:
        """Return the lower bound of the memory of the fullest device in bytes."""
        return float(self._least(strategy).max())

    def _least(self, strategy: Strategy) -> npt.NDArray[np.float64]:
        return least(
            strategy, self._optimizer, self._floor(strategy), self._cut(strategy),
            master=self._master, shared_out=shared_out(self._unstaged(strategy, 0), strategy),
        )  # fmt: skip

    def _cut(self, strategy: Strategy) -> PipelineCut:
        share = self._model.share(strategy.micro_batch, strategy.context)
        key = _degrees(strategy), _stages(strategy), share
        if key not in self._cuts:
            small, large = (self._traced_cut(strategy, which) for which in (0, 1))
            self._cuts[key] = small.between(large, share)
        return self._cuts[key]

    def _traced_cut(self, strategy: Strategy, which: int) -> PipelineCut:
        key = _degrees(strategy), _stages(strategy), which
        if key not in self._traced_cuts:
            self._traced_cuts[key] = cut(self._stages_of(strategy, which))
        return self._traced_cuts[key]

    def _floor(self, strategy: Strategy) -> LowerBound:
        share = self._model.share(strategy.micro_batch, strategy.context)
        key = _degrees(strategy), share
        if key not in self._floors:
            small, large = (self._traced_floor(strategy, which) for which in (0, 1))
            self._floors[key] = small.between(large, share)
        return self._floors[key]

    def _traced_floor(self, strategy: Strategy, which: int) -> LowerBound:
        key = _degrees(strategy), which
        if key not in self._traced_floors:
            self._traced_floors[key] = floor(self._unstaged(strategy, which))
        return self._traced_floors[key]

    def simulation(self, strategy: Strategy) -> Simulation:
        """Return the simulation of a strategy.

        The workloads at both traced micro-batch sizes are divided among ranks and cut into pipeline
        stages. The simulation at the strategy's micro-batch size is interpolated between the
        simulations at the traced sizes. Workloads, stages and simulations are cached.
        """
        share = self._model.share(strategy.micro_batch, strategy.context)
        key = _degrees(strategy), _stages(strategy), share
        if key not in self._simulations:
            small, large = (self._stages_of(strategy, which) for which in (0, 1))
            self._simulations[key] = small.resized(large, share)
        return self._simulations[key]

    def _stages_of(self, strategy: Strategy, which: int) -> Simulation:
        key = _degrees(strategy), _stages(strategy), which
        if key not in self._staged:
            divided = self._unstaged(strategy, which)
            self._staged[key] = divided.staged(strategy.pipeline, strategy.virtual, even=False)
        return self._staged[key]

    def _unstaged(self, strategy: Strategy, which: int) -> Simulation:
        key = _degrees(strategy), which
        if key not in self._divided:
            self._divided[key] = Simulation.of(
                self._model.traced[which],
                tensor=strategy.tensor,
                sequence=strategy.sequence,
                expert=strategy.expert,
                flash=self._runtime.flash,
            )
        return self._divided[key]

    def _workload(self, strategy: Strategy) -> Workload:
        """Return the workload of a rank before it is cut into pipeline stages."""
        key = _degrees(strategy)
        if key not in self._workloads:
            small, large = (self._unstaged(strategy, which).workload for which in (0, 1))
            self._workloads[key] = Resizable(small, large)
        return self._workloads[key].at(strategy.micro_batch, strategy.context)

    def peak(self, strategy: Strategy, machine: HostType) -> PeakMemory:
        """Return the peak memory of the fullest device. The call blocks for tenths of a second."""
        return _beside_context(self._peak(strategy, math.inf), machine)

    def _peak(self, strategy: Strategy, most_bytes: float) -> PeakMemory:
        """Return the peak memory of the fullest device without the context of the process.

        Raises:
            FullError: The peak exceeds `most_bytes`.
        """
        key = _remembered(strategy)
        if key not in self._peaks:
            simulation = self.simulation(strategy)
            peaks = [
                self._replayed(simulation, strategy, rank, most_bytes)
                for rank in self._fullest(strategy)
            ]
            self._peaks[key] = max(peaks, key=lambda peak: peak.reserved)
        return self._peaks[key]

    def fits(self, strategy: Strategy, machine: HostType) -> bool:
        """Return whether the fullest device has enough memory.

        The call blocks for hundredths of a second if the memory is too small, and for tenths of a
        second if the memory suffices.
        """
        room = _room(machine)
        if not self._may_fit(strategy, machine) or self.least(strategy) > memory_bytes(machine):
            return False
        try:
            return self._peak(strategy, room).reserved <= room
        except FullError:
            self._exceeded[_remembered(strategy)] = room
            return False

    def known_fit(self, strategy: Strategy, machine: HostType) -> bool:
        """Return False if an earlier call found that a strategy does not fit, otherwise True."""
        peak = self._peaks.get(_remembered(strategy))
        if peak is not None:
            return peak.reserved <= _room(machine)
        return self._may_fit(strategy, machine)

    def _may_fit(self, strategy: Strategy, machine: HostType) -> bool:
        return _room(machine) > self._exceeded.get(_remembered(strategy), 0.0)

    def _fullest(self, strategy: Strategy) -> list[int]:
        """Return the pipeline ranks that may need most memory.

        The result has the rank with the largest lower bound, and also the first and the last rank
        if their bounds are nearly as large.
        """
        needed = self._least(strategy)
        ranks = dict.fromkeys((int(needed.argmax()), 0, len(needed) - 1))
        return [rank for rank in ranks if needed[rank] >= _NEARLY * needed.max()]

    def _replayed(
        self, simulation: Simulation, strategy: Strategy, rank: int, most_bytes: float
    ) -> PeakMemory:
        workload = self._workload(strategy)
        if strategy.pipeline > 1:
            workload = stage(workload, simulation.placement.rank_of.tolist(), rank)
        workload = hybrid.shared_out(workload, strategy)
        # Only ranks with the same experts shard the optimizer states of these experts.
        alike = max(1, strategy.data * strategy.context // strategy.expert)
        return replay(
            workload,
            replace(strategy, data=alike, context=1, expert=1, layers=()),
            optimizer=self._optimizer,
            most_bytes=most_bytes,
            options=ReplayOptions(
                master=self._master, in_flight=in_flight(strategy, rank), fused=True
            ),
        )

    def step(
        self, strategy: Strategy, machine: HostType, *, every_micro_batch: bool = False
    ) -> SimulatedStep:
        """Return the simulated step of a strategy on the given type of host.

        Args:
            strategy: Strategy to simulate.
            machine: Type of every host.
            every_micro_batch: Whether every micro-batch is simulated, so that the spans of the step
                are complete; otherwise the step is cached without spans (default False).
        """
        if every_micro_batch:
            return self.simulation(strategy).run(
                self.job(strategy, machine), every_micro_batch=True
            )
        key = strategy, self._pace, *_used(strategy, machine.cluster)
        if key not in self._steps:
            step = self.simulation(strategy).run(self.job(strategy, machine))
            self._steps[key] = replace(step, spans=())
        return self._steps[key]

    def alone(self, strategy: Strategy, machine: HostType) -> float:
        """Return the samples per second of a single device with the strategy's micro-batch size."""
        single = Strategy(micro_batch=strategy.micro_batch, micro_batches=strategy.micro_batches)
        return single.global_batch / self.step(single, machine).seconds

    def keep_pace(self, measured: MeasuredDevice, machine: HostType) -> None:
        """Scale device and host times so that the forecast equals a measurement on one device.

        Args:
            measured: Measurement on one device.
            machine: Type of host that contains the device.
        """
        single = Strategy(micro_batch=measured.micro_batch)
        job = replace(self.job(single, machine), input_rate=None)
        self._pace *= single.micro_batch / measured.rate / self.simulation(single).run(job).seconds

    def job(self, strategy: Strategy, machine: HostType) -> TrainingJob:
        """Return the description of a training run that `Simulation.run` needs."""
        return TrainingJob(
            workload=self._model.traced[0],
            strategy=strategy,
            cluster=machine.cluster,
            precision=self._precision,
            optimizer=self._optimizer,
            runtime=self._runtime,
            rates=self._parameters.rates,
            wire=self._parameters.wire,
            gradient_bytes=2 if self._master else 4,
            pace=self._pace,
            input_rate=self._input_rate,
        )

    def layered(self, strategy: Strategy, machine: HostType, room: float) -> Strategy:
        """Return a strategy with the fastest gradient exchange for each layer.

        If no combination of exchanges fits in `room`, the result is `strategy` itself.

        Args:
            strategy: Plain data parallelism.
            machine: Type of every host.
            room: Memory limit in bytes on one device for the parameters, gradients and optimizer
                states of all layers whose exchange can be chosen.
        """
        job = self.job(strategy, machine)
        group = replicas(job)
        share = (strategy.data - 1) / strategy.data
        rate = share * _PROBE / reduce_scatter(_PROBE, group, job.wire)
        flops, _ = peak_flops(machine.cluster.device, DTYPES[self._precision], job.rates)
        layers = list(self.simulation(strategy).activation_exchange.layers.values())
        options = [
            hybrid.options(
                layer, strategy.data, rate, sum(dimension.latency for dimension in group),
                flops_per_second=flops,
            )
            for layer in layers
        ]  # fmt: skip
        try:
            chosen = zip(layers, hybrid.choose(options, room), strict=True)
        except UsageError:
            return strategy
        choices = [(layer.name, option.choice) for layer, option in chosen]
        return replace(
            strategy, layers=tuple((name, choice) for name, choice in choices if choice is not None)
        )


def _degrees(strategy: Strategy) -> _Degrees:
    return strategy.tensor, strategy.expert, strategy.sequence


def _stages(strategy: Strategy) -> _Stages:
    return strategy.pipeline, strategy.virtual


def _used(strategy: Strategy, cluster: Cluster) -> tuple[object, ...]:
    """Return the properties of a cluster that influence the step time of a strategy.

    The step time on a single host does not depend on the network.
    """
    links = [cluster.inside]
    if strategy.ranks > cluster.per_host and cluster.between is not None:
        links.append(cluster.between)
    rates = [(link.name, link.gbyte_per_s, link.latency_us) for link in links]
    return cluster.device.name, cluster.per_host, cluster.adds, *rates


def _remembered(strategy: Strategy) -> Strategy:
    """Return the strategy as a cache key, without properties that do not affect memory."""
    return replace(strategy, across=False, servers=0, codec="none")


def memory_bytes(machine: HostType) -> float:
    """Return the memory of one device in bytes."""
    return machine.cluster.device.memory_gib * GIB


def _context(machine: HostType) -> int:
    """Return the bytes of device memory that a process occupies in addition to its tensors."""
    return int(machine.cluster.device.context_mib * MIB)


def _room(machine: HostType) -> float:
    """Return the bytes of a device that are available for tensors."""
    return memory_bytes(machine) - _context(machine)


def _beside_context(peak: PeakMemory, machine: HostType) -> PeakMemory:
    return replace(peak, reserved=peak.reserved + _context(machine))
