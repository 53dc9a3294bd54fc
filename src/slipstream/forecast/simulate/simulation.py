"""Simulation of one training step on the resources of the host, the devices and the network."""

# NumPy's arrays lose their types in sums and copies.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from slipstream.forecast.simulate.activation_exchange import ActivationExchange
from slipstream.forecast.simulate.coding import coding_seconds, wire_bytes
from slipstream.forecast.simulate.compute import Seconds, Work, blend, elapsed
from slipstream.forecast.simulate.gradients import (
    GradientExchange,
    PassTimes,
    gathered,
    is_apart,
    replicas,
)
from slipstream.forecast.simulate.job import TrainingJob
from slipstream.forecast.simulate.network import reduce_scatter, send
from slipstream.forecast.simulate.pipeline import StageTimes, schedule, steady_schedule
from slipstream.forecast.simulate.resources import Resources, ResourceSpan
from slipstream.forecast.simulate.sharded import ShardedBlock, run
from slipstream.forecast.work.attention import unfused
from slipstream.forecast.work.blocks import blocks
from slipstream.forecast.work.division import DividedModel, divide
from slipstream.forecast.work.experts import share
from slipstream.forecast.work.stages import cuts
from slipstream.forecast.work.workload import TrainingPhase, Workload

# FLOPs that take a device about as long as moving a byte, to weigh blocks. Chosen by hand.
_FLOPS_PER_BYTE = 100.0
# Maximum number of passes (micro-batches times ranks) that are simulated one by one.
_MOST_PASSES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """Durations of a step in seconds, on the slowest rank.

    Args:
        seconds: Whole step.
        compute: Computation on the device.
        moved: Part of `compute` in operators that memory bandwidth limits.
        tensor: Exchange between tensor, context and expert ranks within the passes.
        bubble: Waiting time for other pipeline stages.
        exchange: Gradient exchange that no computation hides.
        optimizer: Parameter update.
        host: Waiting time for the host.
        input: Waiting time for input samples.
        spans: Tasks of each resource.
    """

    seconds: float
    compute: float
    moved: float
    tensor: float
    bubble: float
    exchange: float
    optimizer: float
    host: float
    input: float
    spans: tuple[ResourceSpan, ...]


class Simulation:
    """Simulation of one step of a job, prepared for any calibrated parameters.

    Args:
        workload: One micro-batch of the whole model on one device.
        tensor: Number of tensor ranks (default 1).
        sequence: Whether tensor ranks also divide the operators between matrix products (default
            False).
        expert: Number of ranks that divide the experts (default 1).
        pipeline: Number of pipeline ranks (default 1).
        virtual: Number of stages that each pipeline rank runs in turns (default 1).
        even: Whether stages have equal numbers of blocks, as frameworks do it; otherwise they have
            about equal work (default True).
        flash: Whether attention is one fused kernel (default True).
        dropout: Whether attention scores are dropped (default False).
        softmax_of: Divisor of samples times heads for which softmax is fused; see `unfused`
            (default 1).
    """

    def __init__(
        self,
        workload: Workload,
        *,
        tensor: int = 1,
        sequence: bool = False,
        expert: int = 1,
        pipeline: int = 1,
        virtual: int = 1,
        even: bool = True,
        flash: bool = True,
        dropout: bool = False,
        softmax_of: int = 1,
    ) -> None:
        whole = workload
        if not flash:
            whole = unfused(workload, dropout=dropout, softmax_of=softmax_of * tensor)
        self.division: DividedModel = divide(whole, tensor, sequence=sequence)
        experts = share(self.division.workload, expert)
        self.workload = experts.workload
        self.experts = experts.names
        self.work = Work.of(self.workload.operators)
        self.blocks, places = blocks(self.workload.operators)
        self.block_of = np.array(places)
        self.activation_exchange = ActivationExchange.of(
            self.workload, self.division.joints, experts.moves
        )
        self.numbers = sum(each.elements for each in self.workload.parameters)
        self.activations = self._activations()
        self._place(pipeline, virtual, even=even)

    def staged(self, pipeline: int, virtual: int, *, even: bool = True) -> Simulation:
        """Return the simulation with other pipeline stages.

        Args:
            pipeline: Number of pipeline ranks.
            virtual: Number of stages that each rank runs in turns.
            even: Whether stages have equal numbers of blocks (default True).
        """
        found = copy.copy(self)
        found._place(pipeline, virtual, even=even)
        return found

    def resized(self, other: Simulation, share: float) -> Simulation:
        """Return the simulation at another micro-batch; `workload` does not change.

        Args:
            other: Simulation with the same degrees and a larger micro-batch.
            share: Position between both micro-batches: 0 is this one, 1 the other; it may exceed 1.
        """
        found = copy.copy(self)
        found.work = self.work.between(other.work, share)
        found.activation_exchange = self.activation_exchange.between(
            other.activation_exchange, share
        )
        found.activations = blend(self.activations, other.activations, share)
        found.crossing = blend(self.crossing, other.crossing, share)
        return found

    def _place(self, pipeline: int, virtual: int, *, even: bool) -> None:
        self.stages = min(pipeline * virtual, self.blocks)
        self.ranks = min(pipeline, self.stages)
        self.stage_of = self._stages(even=even)
        self.rank_of = self.stage_of % self.ranks
        self.crossing = self._crossing()
        self.gradients = GradientExchange(self.workload, self.rank_of.tolist(), self.experts)

    def _activations(self) -> Seconds:
        """Return the bytes that each block stores from the forward to the backward pass."""
        forward = int((~self.work.backward).sum())
        found = np.zeros(self.blocks)
        for value in self.workload.values:
            if 0 <= value.born < forward <= value.dies:
                found[self.block_of[value.born]] += value.num_bytes
        return found

    def _stages(self, *, even: bool) -> npt.NDArray[np.int64]:
        """Return the stage of each operator."""
        if even or self.stages == 1:
            return self.block_of * self.stages // self.blocks
        work = np.array([op.flops for op in self.workload.operators])
        weights = np.zeros(self.blocks)
        np.add.at(weights, self.block_of, np.maximum(work, self.work.bytes * _FLOPS_PER_BYTE))
        return np.array(cuts(weights.tolist(), self.stages))[self.block_of]

    def _crossing(self) -> Seconds:
        """Return the bytes that each stage sends: the largest value that the next stage reads."""
        found = np.zeros(self.stages)
        if self.stages == 1:
            return found
        places = self.stage_of.tolist()
        born: dict[int, int] = {}
        for operator, stage in zip(self.workload.operators, places, strict=True):
            if operator.phase is TrainingPhase.BACKWARD:
                break
            for value in operator.reads:
                if born.get(value, stage) == stage - 1:
                    size = float(self.workload.values[value].num_bytes)
                    found[stage - 1] = max(found[stage - 1], size)
            for value in operator.writes:
                born[value] = stage
        return found

    def run(self, job: TrainingJob, *, whole: bool = False) -> SimulatedStep:
        """Return the durations of a step of a job.

        Args:
            job: Job with the workload and the degrees of this simulation.
            whole: Whether every micro-batch is simulated, up to 4096 passes; otherwise only some
                (default False).
        """
        strategy, cluster = job.strategy, job.cluster
        if job.runtime.graphs:
            job = replace(job, wire=job.wire.in_graph())
        device, limited = self.work.seconds(
            cluster.device, job.rates, job.runtime, job.precision,
            channels_first=job.channels_first, fp8=job.fp8,
        )  # fmt: skip
        device = device * job.pace
        moved = float(device[limited].sum()) / self.ranks * strategy.micro_batches
        slowest = job.runtime.slowest(strategy.ranks, strategy.apart)
        device = self.activation_exchange.repeated(job, device) * slowest
        if strategy.checkpoint or strategy.selective:
            # The forward pass of a block is repeated before its backward pass.
            device, again = device.copy(), self._again(device, selective=strategy.selective)
            np.add.at(device, again[0], again[1])
        passed = self.activation_exchange.seconds(job, device)
        queues = Resources()
        if strategy.zero == 3 and self.ranks == 1:
            end, exchange, passes = self._sharded(job, device + passed, queues)
        else:
            end, exchange, passes = self._replicated(job, device + passed, queues, whole=whole)
        update = self._update(job)
        script = self._script(job)
        computed = float(device.sum()) / self.ranks * strategy.micro_batches
        sent = float(passed.sum()) / self.ranks * strategy.micro_batches
        after = gathered(job, self._own_numbers(job))
        seconds = max(end, exchange) + update + after + script
        behind = max(0.0, self._issued(job) - seconds)
        seconds += behind
        return SimulatedStep(
            seconds=max(seconds, job.input_seconds),
            compute=computed,
            moved=moved,
            tensor=sent,
            bubble=max(0.0, end - passes),
            exchange=max(0.0, exchange - end) + after,
            optimizer=update,
            host=max(0.0, passes - computed - sent) + script + behind,
            input=max(0.0, job.input_seconds - seconds),
            spans=tuple(queues.spans),
        )

    def _again(self, device: Seconds, *, selective: bool) -> tuple[npt.NDArray[np.int64], Seconds]:
        """Return the seconds of recomputation at the start of each block's backward pass."""
        backward = np.flatnonzero(self.work.backward)
        _, first = np.unique(self.block_of[backward], return_index=True)
        forward = np.zeros(self.blocks)
        seconds = device * self.work.cheap if selective else device
        np.add.at(forward, self.block_of[~self.work.backward], seconds[~self.work.backward])
        return backward[first], forward[np.unique(self.block_of[backward])]

    def _replicated(
        self, job: TrainingJob, device: Seconds, queues: Resources, *, whole: bool
    ) -> tuple[float, float, float]:
        """Simulate the pipeline and the exchange of complete gradients.

        Return the end of the pipeline, the end of the exchange, and the seconds of a rank's passes.
        """
        issue = self._issue(job)
        stages: list[StageTimes] = []
        forward = np.zeros(len(device))
        after = np.zeros(len(device))
        for number in range(self.stages):
            mine = np.flatnonzero(self.stage_of == number)
            ends = elapsed(device[mine], issue[mine])
            middle = float(ends[~self.work.backward[mine]][-1])
            stages.append(StageTimes(middle, float(ends[-1]) - middle, self._send(number, job)))
            forward[mine], after[mine] = ends, ends - middle
        count = job.strategy.micro_batches
        every = whole and count * self.ranks <= _MOST_PASSES
        lasts = (schedule if every else steady_schedule)(stages, count, queues, self.ranks)
        end = max(end for _, end in lasts)
        passes = sum(stage.forward + stage.backward for stage in stages) / self.ranks
        found = [PassTimes(begin, last, after, forward) for begin, last in lasts]
        exchange = self.gradients.exchange(job, found, queues)
        return end, exchange, passes * count

    def _sharded(
        self, job: TrainingJob, device: Seconds, queues: Resources
    ) -> tuple[float, float, float]:
        """Simulate blocks with sharded parameters; the result is that of `_replicated`."""
        strategy = job.strategy
        numbers = self._numbers()
        durations = np.diff(elapsed(device, self._issue(job)), prepend=0.0)
        parts: list[ShardedBlock] = []
        for number in range(self.blocks):
            mine = self.block_of == number
            gather = scatter = 0.0
            for count, shared in zip(numbers[number], (False, True), strict=True):
                if count:
                    group = replicas(job, shared=shared)
                    gather += reduce_scatter(count * job.gradient_bytes, group, job.wire)
                    sent = reduce_scatter(count * wire_bytes(job), group, job.wire)
                    scatter += max(sent, coding_seconds(count, job))
            forward = float(durations[mine & ~self.work.backward].sum())
            backward = float(durations[mine & self.work.backward].sum())
            parts.append(ShardedBlock(forward, backward, gather, scatter))
        end = run(parts, strategy.micro_batches, job.runtime.overlap, queues)
        passes = float(durations.sum()) * strategy.micro_batches
        return passes, end, passes

    def _numbers(self) -> list[list[float]]:
        """Return the parameters of each block: those of all replicas, and those of experts."""
        found = [[0.0, 0.0] for _ in range(self.blocks)]
        for parameter in self.workload.parameters:
            at = int(self.block_of[parameter.ready]) if parameter.ready >= 0 else 0
            found[at][parameter.name in self.experts] += parameter.elements
        return found

    def _issue(self, job: TrainingJob) -> Seconds:
        """Return the seconds in which the host launches each operator."""
        runtime = job.runtime
        if runtime.graphs:
            return np.zeros(len(self.work.backward))
        micros = np.where(self.work.backward, runtime.backward_us, runtime.forward_us)
        return (
            (micros + np.where(self.activation_exchange.sums > 0, runtime.collective_us, 0.0))
            * 1e-6
            * job.pace
        )

    def _script(self, job: TrainingJob) -> float:
        """Return the seconds of host work after a step during which the device waits."""
        waits = self._changes(job) if job.cluster.device.kind == "cpu" else 0.0
        return job.runtime.step_ms * 1e-3 * job.pace + waits

    def _changes(self, job: TrainingJob) -> float:
        """Return the seconds in which the host of a rank launches the updates of all parameters."""
        return len(self.workload.parameters) * job.runtime.update_us * 1e-6 * job.pace / self.ranks

    def _issued(self, job: TrainingJob) -> float:
        """Return the seconds of host work for a step if the host never waits for its device."""
        passes = float(self._issue(job).sum()) * job.strategy.micro_batches / self.ranks
        return passes + self._changes(job)

    def _send(self, stage: int, job: TrainingJob) -> float:
        if stage + 1 >= self.stages:
            return 0.0
        strategy = job.strategy
        stride = strategy.tensor * strategy.context * strategy.data
        if self.ranks == 1:
            return 0.0
        # Tensor ranks have the same activations; each sends its share, and the receivers gather
        # them.
        return send(float(self.crossing[stage]), job.cluster, job.wire, stride)

    def _own_numbers(self, job: TrainingJob) -> float:
        """Return the number of a rank's parameters that all replicas store."""
        return (self.numbers - self._apart(job)) / self.ranks

    def _apart(self, job: TrainingJob) -> int:
        """Return the number of parameters that the replicas shard by layer."""
        if not job.strategy.layers:
            return 0
        return sum(each.elements for each in self.workload.parameters if is_apart(job, each.name))

    def _update(self, job: TrainingJob) -> float:
        """Return the seconds of the optimizer, which reads and writes parameters and states."""
        numbers = self._own_numbers(job)
        if job.strategy.zero:
            numbers /= job.strategy.data
        numbers += self._apart(job) / job.strategy.data
        passes = 3 + 2 * job.optimizer.value
        rate = job.cluster.device.memory_gb_per_s * 1e9 * job.rates.memory
        return numbers * 4 * passes / rate * job.runtime.memory * job.pace
