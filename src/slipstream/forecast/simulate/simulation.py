"""Simulation of one training step on the resources of the host, the devices and the network."""

# Pyright loses the types of NumPy arrays in sums and copies.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from slipstream.forecast.simulate.activation_exchange import ActivationExchange
from slipstream.forecast.simulate.coding import coding_seconds, wire_bytes
from slipstream.forecast.simulate.compute import FloatArray, Work, elapsed
from slipstream.forecast.simulate.gradients import (
    GradientExchange,
    PassTimes,
    gathered,
    is_apart,
    replicas,
)
from slipstream.forecast.simulate.host import host_work
from slipstream.forecast.simulate.job import TrainingJob
from slipstream.forecast.simulate.network import reduce_scatter, send
from slipstream.forecast.simulate.pipeline import StageTimes, schedule, steady_schedule
from slipstream.forecast.simulate.placement import Placement, placed, unstaged
from slipstream.forecast.simulate.resources import Resources
from slipstream.forecast.simulate.sharded import ShardedBlock, run
from slipstream.forecast.simulate.step import SimulatedStep
from slipstream.forecast.work.attention import unfused
from slipstream.forecast.work.blocks import blocks
from slipstream.forecast.work.division import DividedModel, divide
from slipstream.forecast.work.experts import share as share_experts
from slipstream.forecast.work.workload import Workload

# Maximum number of passes (micro-batches times pipeline ranks) that are simulated one by one. It
# only bounds the time of a simulation: `steady_schedule` gives the same times.
_MOST_PASSES = 4096


class _OperatorTimes(NamedTuple):
    """Times of the operators in seconds.

    Args:
        device: Time of each operator on the device, including waits for other ranks.
        launches: Time in which the host launches each operator.
    """

    device: FloatArray
    launches: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulation:
    """Model divided among ranks, whose step can be simulated with any calibrated parameters.

    `Simulation.of` makes a simulation from a workload; `staged` and `resized` return variants.

    Args:
        workload: Operators and tensors of one micro-batch on one rank, which has a share of each
            tensor-parallel layer and some of the experts.
        division: Result of the division of matrix products among tensor-parallel ranks.
        experts: Names of the parameters that expert-parallel ranks divide among themselves.
        num_parameters: Number of elements of all parameters of `workload`.
        work: Sizes and FLOPs of the operators.
        blocks: Number of repeated blocks.
        block_of: Index of the block of each operator.
        activation_exchange: Bytes that ranks exchange after each operator.
        placement: Pipeline stages of the operators.
        gradients: Buckets of gradients and their exchange.
    """

    workload: Workload
    division: DividedModel
    experts: frozenset[str]
    num_parameters: int
    work: Work
    blocks: int
    block_of: npt.NDArray[np.int64]
    activation_exchange: ActivationExchange
    placement: Placement
    gradients: GradientExchange

    @classmethod
    def of(
        cls,
        workload: Workload,
        *,
        tensor: int = 1,
        sequence: bool = False,
        expert: int = 1,
        flash: bool = True,
        dropout: bool = False,
        softmax_of: int = 1,
    ) -> Simulation:
        """Return the simulation of a model without a pipeline.

        Args:
            workload: Workload of one micro-batch of the whole model on one device.
            tensor: Number of tensor-parallel ranks (default 1).
            sequence: Whether to use sequence parallelism: tensor-parallel ranks then divide by
                tokens the operators outside the pairs of divided matrix products, such as norms
                (default False).
            expert: Number of ranks that divide the experts (default 1).
            flash: Whether attention is one fused kernel (default True).
            dropout: Whether dropout is applied to attention scores (default False).
            softmax_of: Number by which samples times heads of a rank must be divisible, so that
                softmax runs as one kernel; see `unfused` (default 1: always one kernel).
        """
        if not flash:
            workload = unfused(workload, dropout=dropout, softmax_of=softmax_of * tensor)
        division = divide(workload, tensor, sequence=sequence)
        experts = share_experts(division.workload, expert)
        operators = experts.workload.operators
        count, block_of = blocks(operators)
        placement = unstaged(len(operators))
        return cls(
            workload=experts.workload,
            division=division,
            experts=experts.names,
            num_parameters=experts.workload.num_parameters,
            work=Work.of(operators),
            blocks=count,
            block_of=np.array(block_of),
            activation_exchange=ActivationExchange.of(
                experts.workload, division.joints, experts.moves
            ),
            placement=placement,
            gradients=GradientExchange(experts.workload, placement.rank_of.tolist(), experts.names),
        )

    def staged(self, pipeline: int, virtual: int = 1, *, even: bool = True) -> Simulation:
        """Return the simulation, divided into the given pipeline stages.

        Args:
            pipeline: Number of pipeline ranks.
            virtual: Number of stages that each rank runs in turns (default 1).
            even: Whether stages have equal numbers of blocks, as in most frameworks; otherwise,
                stages have about equal work (default True).
        """
        placement = placed(
            self.workload, self.work, self.block_of, pipeline=pipeline, virtual=virtual, even=even
        )
        gradients = GradientExchange(self.workload, placement.rank_of.tolist(), self.experts)
        return replace(self, placement=placement, gradients=gradients)

    def resized(self, other: Simulation, share: float) -> Simulation:
        """Return the simulation at another micro-batch size; `workload` does not change.

        Args:
            other: Simulation with the same degrees of parallelism and a larger micro-batch size.
            share: Position between the micro-batch sizes of this simulation (0) and of `other` (1);
                a position above 1 extrapolates.
        """
        return replace(
            self,
            work=self.work.between(other.work, share),
            activation_exchange=self.activation_exchange.between(other.activation_exchange, share),
            placement=self.placement.between(other.placement, share),
        )

    def run(self, job: TrainingJob, *, every_micro_batch: bool = False) -> SimulatedStep:
        """Simulate a training step of a job, and return its durations.

        Args:
            job: Job with the workload and the degrees of parallelism of this simulation.
            every_micro_batch: Whether every micro-batch is simulated, so that the spans contain all
                tasks (default False). A step in which micro-batches times pipeline ranks exceed
                4096 always skips micro-batches.
        """
        strategy, cluster = job.strategy, job.cluster
        if job.runtime.graphs:
            job = replace(job, wire=job.wire.in_graph())
        device, limited = self.work.seconds(
            cluster.device, job.rates, job.runtime, job.precision,
            channels_first=job.channels_first, fp8=job.fp8,
        )  # fmt: skip
        device = device * job.pace
        moved = float(device[limited].sum()) / self.placement.ranks * strategy.micro_batches
        slowest = job.runtime.slowest(strategy.ranks, strategy.apart)
        device = self.activation_exchange.repeated(job, device) * slowest
        if strategy.checkpoint or strategy.selective:
            # The forward pass of a block is repeated before its backward pass.
            device, again = device.copy(), self._again(device, selective=strategy.selective)
            np.add.at(device, again[0], again[1])
        passed = self.activation_exchange.seconds(job, device)
        ranks, queues = self.placement.ranks, Resources()
        host = host_work(
            job, self.work, self.activation_exchange.sums, len(self.workload.parameters), ranks
        )
        times = _OperatorTimes(device + passed, host.launches)
        if strategy.zero == 3 and ranks == 1:
            end, exchange, passes = self._sharded(job, times, queues)
        else:
            end, exchange, passes = self._replicated(
                job, times, queues, every_micro_batch=every_micro_batch
            )
        update = self._update(job)
        computed = float(device.sum()) / ranks * strategy.micro_batches
        sent = float(passed.sum()) / ranks * strategy.micro_batches
        after = gathered(job, self._own_numbers(job))
        seconds = max(end, exchange) + update + after + host.script
        behind = max(0.0, host.step - seconds)
        seconds += behind
        return SimulatedStep(
            seconds=max(seconds, job.input_seconds),
            compute=computed,
            moved=moved,
            tensor=sent,
            bubble=max(0.0, end - passes),
            exchange=max(0.0, exchange - end) + after,
            optimizer=update,
            host=max(0.0, passes - computed - sent) + host.script + behind,
            input=max(0.0, job.input_seconds - seconds),
            spans=tuple(queues.spans),
        )

    def _again(
        self, device: FloatArray, *, selective: bool
    ) -> tuple[npt.NDArray[np.int64], FloatArray]:
        """Return the first backward operator of each block, and its seconds of recomputation."""
        backward = np.flatnonzero(self.work.backward)
        _, first = np.unique(self.block_of[backward], return_index=True)
        forward = np.zeros(self.blocks)
        seconds = device * self.work.cheap if selective else device
        np.add.at(forward, self.block_of[~self.work.backward], seconds[~self.work.backward])
        return backward[first], forward[np.unique(self.block_of[backward])]

    def _replicated(
        self,
        job: TrainingJob,
        times: _OperatorTimes,
        queues: Resources,
        *,
        every_micro_batch: bool,
    ) -> tuple[float, float, float]:
        """Simulate the pipeline and the exchange of complete gradients.

        Return three times in seconds: the end of the last backward pass, the end of the exchange,
        and the duration of all forward and backward passes of one rank.
        """
        stages: list[StageTimes] = []
        forward = np.zeros(len(times.device))
        after = np.zeros(len(times.device))
        for number in range(self.placement.stages):
            members = np.flatnonzero(self.placement.stage_of == number)
            ends = elapsed(times.device[members], times.launches[members])
            middle = float(ends[~self.work.backward[members]][-1])
            stages.append(StageTimes(middle, float(ends[-1]) - middle, self._send(number, job)))
            forward[members], after[members] = ends, ends - middle
        count = job.strategy.micro_batches
        every = every_micro_batch and count * self.placement.ranks <= _MOST_PASSES
        lasts = (schedule if every else steady_schedule)(
            stages, count, queues, self.placement.ranks
        )
        end = max(end for _, end in lasts)
        passes = sum(stage.forward + stage.backward for stage in stages) / self.placement.ranks
        pass_times = [PassTimes(begin, last, after, forward) for begin, last in lasts]
        exchange = self.gradients.exchange(job, pass_times, queues)
        return end, exchange, passes * count

    def _sharded(
        self, job: TrainingJob, times: _OperatorTimes, queues: Resources
    ) -> tuple[float, float, float]:
        """Simulate blocks with sharded parameters, and return results as `_replicated` does."""
        strategy = job.strategy
        numbers = self._numbers()
        durations = np.diff(elapsed(times.device, times.launches), prepend=0.0)
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
        """Return two counts for each block: of replicated parameters, and of expert parameters."""
        counts = [[0.0, 0.0] for _ in range(self.blocks)]
        for parameter in self.workload.parameters:
            at = int(self.block_of[parameter.ready]) if parameter.ready >= 0 else 0
            counts[at][parameter.name in self.experts] += parameter.elements
        return counts

    def _send(self, stage: int, job: TrainingJob) -> float:
        if stage + 1 >= self.placement.stages:
            return 0.0
        strategy = job.strategy
        stride = strategy.tensor * strategy.context * strategy.data
        if self.placement.ranks == 1:
            return 0.0
        # Tensor-parallel ranks have the same activations; each sends its share, and the receivers
        # gather the shares.
        return send(float(self.placement.crossing[stage]), job.cluster, job.wire, stride)

    def _own_numbers(self, job: TrainingJob) -> float:
        """Return how many parameters of a rank are stored on every replica."""
        return (self.num_parameters - self._apart(job)) / self.placement.ranks

    def _apart(self, job: TrainingJob) -> int:
        """Return the number of parameters in layers that the strategy shards over replicas."""
        if not job.strategy.layers:
            return 0
        return sum(
            parameter.elements
            for parameter in self.workload.parameters
            if is_apart(job, parameter.name)
        )

    def _update(self, job: TrainingJob) -> float:
        """Return the seconds of the optimizer, which reads and writes parameters and states."""
        numbers = self._own_numbers(job)
        if job.strategy.zero:
            numbers /= job.strategy.data
        numbers += self._apart(job) / job.strategy.data
        passes = 3 + 2 * job.optimizer.value
        rate = job.cluster.device.memory_gb_per_s * 1e9 * job.rates.memory
        return numbers * 4 * passes / rate * job.runtime.memory * job.pace
