"""One step of a job, simulated on queues of the host, the devices and the network."""

# NumPy's arrays lose their types in sums and copies.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slipstream.forecast.attention import unfused
from slipstream.forecast.blocks import blocks
from slipstream.forecast.compute import Seconds, Work, elapsed
from slipstream.forecast.division import Division, divide
from slipstream.forecast.job import Job
from slipstream.forecast.network import all_reduce, dimensions, reduce_scatter, send
from slipstream.forecast.pipeline import Stage, schedule
from slipstream.forecast.queues import Queues, Span
from slipstream.forecast.sharded import Block, run
from slipstream.forecast.strategy import WIRE_SHARE
from slipstream.forecast.workload import Phase, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a step takes, in seconds, on the rank that takes longest.

    Args:
        seconds: of the whole step.
        compute: in which the device computes.
        moved: of these, in operators that memory limits.
        tensor: of sums over tensor ranks.
        bubble: in which it waits for other stages.
        exchange: of gradients that nothing hides.
        optimizer: of the update.
        host: in which the device waits for the host.
        spans: what each queue did.
    """

    seconds: float
    compute: float
    moved: float
    tensor: float
    bubble: float
    exchange: float
    optimizer: float
    host: float
    spans: tuple[Span, ...]


class _Spent:
    """Seconds of each operator on its queues."""

    def __init__(self, device: Seconds, tensor: Seconds, issue: Seconds) -> None:
        self._device = device + tensor
        self._issue = issue

    def ends(self, mine: npt.NDArray[np.int64]) -> Seconds:
        """Returns when each of some operators ends, as they run alone."""
        return elapsed(self._device[mine], self._issue[mine])


class Simulation:
    """A job's step, with what does not depend on fitted numbers prepared.

    Args:
        workload: one micro-batch of the whole model on one device.
        tensor: ranks that share products.
        pipeline: stages, times those that each rank has in turns.
        flash: attention is one kernel.
        dropout: of scores.
        softmax_of: see `unfused`.
        apart: parameters that replicas share out though all else is replicated.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        tensor: int = 1,
        pipeline: int = 1,
        flash: bool = True,
        dropout: bool = False,
        softmax_of: int = 1,
        apart: frozenset[str] = frozenset(),
    ) -> None:
        self._apart = apart
        whole = workload
        if not flash:
            whole = unfused(workload, dropout=dropout, softmax_of=softmax_of * tensor)
        self.division: Division = divide(whole, tensor)
        self.workload = self.division.workload
        self.work = Work(self.workload.operators)
        self.blocks, places = blocks(self.workload.operators)
        self.block_of = np.array(places)
        self.stages = min(pipeline, self.blocks)
        self.stage_of = self.block_of * self.stages // self.blocks
        self.crossing = self._crossing()
        self._known_buckets: dict[tuple[int, int], list[tuple[float, int]]] = {}
        self.joined = np.zeros(len(self.workload.operators))
        for joint in self.division.joints:
            self.joined[joint.after] += joint.num_bytes

    def _crossing(self) -> list[float]:
        """Bytes that each stage gives the next: the largest value that the next reads."""
        found = [0.0] * self.stages
        born = {v: i for i, op in enumerate(self.workload.operators) for v in op.writes}
        for index, operator in enumerate(self.workload.operators):
            stage = int(self.stage_of[index])
            if operator.phase is Phase.BACKWARD or stage == 0:
                continue
            for value in operator.reads:
                if value in born and self.stage_of[born[value]] == stage - 1:
                    size = float(self.workload.values[value].num_bytes)
                    found[stage - 1] = max(found[stage - 1], size)
        return found

    def run(self, job: Job) -> Step:
        """Returns what a step of a job takes.

        Args:
            job: with the workload, tensor and pipeline of this simulation.
        """
        strategy, cluster, wire = job.strategy, job.cluster, job.wire
        device, limited = self.work.seconds(cluster.device, job.rates, job.runtime, job.precision)
        moved = float(device[limited].sum()) / self.stages * strategy.micro_batches
        if strategy.checkpoint:
            # The forward pass of a block runs once more before its backward pass.
            device, again = device.copy(), self._again(device)
            np.add.at(device, again[0], again[1])
        group = dimensions(cluster, wire, strategy.tensor)
        sums = {size: all_reduce(size, group, wire) for size in set(self.joined.tolist()) if size}
        tensor = np.array([sums.get(size, 0.0) for size in self.joined.tolist()])
        queues = Queues()
        spent = _Spent(device, tensor, self._issue(job))
        if strategy.zero == 3:
            end, exchange, passes = self._sharded(job, spent, queues)
        else:
            end, exchange, passes = self._replicated(job, spent, queues)
        update = self._update(job)
        script = job.runtime.step_ms * 1e-3
        computed = float(device.sum()) / self.stages * strategy.micro_batches
        summed = float(tensor.sum()) / self.stages * strategy.micro_batches
        return Step(
            seconds=max(end, exchange) + update + script,
            compute=computed,
            moved=moved,
            tensor=summed,
            bubble=max(0.0, end - passes),
            exchange=max(0.0, exchange - end),
            optimizer=update,
            host=max(0.0, passes - computed - summed) + script,
            spans=tuple(queues.spans),
        )

    def _again(self, device: Seconds) -> tuple[npt.NDArray[np.int64], Seconds]:
        """Seconds of each block's forward pass, at the first operator of its backward pass."""
        backward = np.flatnonzero(self.work.backward)
        _, first = np.unique(self.block_of[backward], return_index=True)
        forward = np.zeros(self.blocks)
        np.add.at(forward, self.block_of[~self.work.backward], device[~self.work.backward])
        return backward[first], forward[np.unique(self.block_of[backward])]

    def _replicated(self, job: Job, spent: _Spent, queues: Queues) -> tuple[float, float, float]:
        """Runs the pipeline and then exchanges whole gradients; returns the ends of both, and the
        seconds of a rank's passes."""
        stages: list[Stage] = []
        readies: list[Seconds] = []
        for number in range(self.stages):
            mine = np.flatnonzero(self.stage_of == number)
            ends = spent.ends(mine)
            forward = float(ends[~self.work.backward[mine]][-1])
            stages.append(Stage(forward, float(ends[-1]) - forward, self._send(number, job)))
            readies.append(ends - forward)
        lasts = schedule(stages, job.strategy.micro_batches, queues, job.strategy.pipeline)
        end = max(end for _, end in lasts)
        passes = sum(stage.forward + stage.backward for stage in stages) / self.stages
        exchange = self._exchange(job, lasts, readies, queues)
        return end, exchange, passes * job.strategy.micro_batches

    def _sharded(self, job: Job, spent: _Spent, queues: Queues) -> tuple[float, float, float]:
        """Runs blocks whose parameters are gathered; returns as `_replicated` does."""
        strategy = job.strategy
        group = dimensions(job.cluster, job.wire, strategy.data, strategy.tensor)
        numbers = self._numbers()
        ends = spent.ends(np.arange(len(self.block_of)))
        durations = np.diff(ends, prepend=0.0)
        parts: list[Block] = []
        for number in range(self.blocks):
            mine = self.block_of == number
            gather = reduce_scatter(numbers[number] * job.gradient_bytes, group, job.wire)
            scatter = reduce_scatter(numbers[number] * _wire_bytes(job), group, job.wire)
            forward = float(durations[mine & ~self.work.backward].sum())
            backward = float(durations[mine & self.work.backward].sum())
            parts.append(Block(forward, backward, gather, scatter))
        overlap = job.runtime.overlap
        end = run(parts, strategy.micro_batches, overlap, queues)
        passes = float(durations.sum()) * strategy.micro_batches
        return passes, end, passes

    def _numbers(self) -> list[float]:
        """Numbers of the parameters of each block."""
        found = [0.0] * self.blocks
        for parameter in self.workload.parameters:
            at = int(self.block_of[parameter.ready]) if parameter.ready >= 0 else 0
            found[at] += parameter.elements
        return found

    def _issue(self, job: Job) -> Seconds:
        """Seconds in which the host issues each operator."""
        runtime = job.runtime
        micros = np.where(self.work.backward, runtime.backward_us, runtime.forward_us)
        return (micros + np.where(self.joined > 0, runtime.collective_us, 0.0)) * 1e-6

    def _send(self, stage: int, job: Job) -> float:
        if stage + 1 >= self.stages:
            return 0.0
        stride = job.strategy.tensor * job.strategy.data
        # Tensor ranks have the same numbers; each sends its share and they gather it again.
        return send(self.crossing[stage], job.cluster, job.wire, stride)

    def _exchange(
        self,
        job: Job,
        ends: Sequence[tuple[float, float]],
        readies: Sequence[Seconds],
        queues: Queues,
    ) -> float:
        """Puts the exchange of gradients on the network's queue; returns when all have it."""
        strategy = job.strategy
        if strategy.data == 1:
            return 0.0
        group = dimensions(job.cluster, job.wire, strategy.data, strategy.tensor)
        scale = _wire_bytes(job)
        last = 0.0
        for rank, (start, end) in enumerate(ends):
            queue, total = f"network {rank}", 0.0
            buckets = self._buckets(rank, strategy.bucket_bytes)
            for numbers, ready in buckets:
                seconds = all_reduce(numbers * scale, group, job.wire)
                total += seconds
                when = min(end, start + float(readies[rank][ready]))
                queues.run(queue, "all-reduce", seconds * job.runtime.overlap, when)
            rest = total * (1 - job.runtime.overlap)
            last = max(last, queues.run(queue, "all-reduce", rest, end))
        return last

    def _buckets(self, stage: int, bucket_bytes: int) -> list[tuple[float, int]]:
        """Numbers of each bucket of a stage's gradients, and the operator, counted in the stage,
        after which the last of them is whole."""
        key = stage, bucket_bytes
        if key in self._known_buckets:
            return self._known_buckets[key]
        mine = np.flatnonzero(self.stage_of == stage)
        own = [
            each
            for each in self.workload.gradients()
            if self.stage_of[each.ready] == stage and each.name not in self._apart
        ]
        found: list[tuple[float, int]] = []
        numbers = 0.0
        for index, parameter in enumerate(own):
            numbers += parameter.elements
            if numbers * 4 >= bucket_bytes or index + 1 == len(own):
                found.append((numbers, int(np.searchsorted(mine, parameter.ready))))
                numbers = 0.0
        self._known_buckets[key] = found
        return found

    def _update(self, job: Job) -> float:
        """Seconds of the optimizer: it reads and writes parameters and states."""
        apart = sum(p.elements for p in self.workload.parameters if p.name in self._apart)
        numbers = (self.workload.num_parameters - apart) / job.strategy.pipeline
        if job.strategy.zero:
            numbers /= job.strategy.data
        numbers += apart / job.strategy.data
        passes = 3 + 2 * job.optimizer.value
        rate = job.cluster.device.memory_gb_per_s * 1e9 * job.rates.memory
        return numbers * 4 * passes / rate * job.runtime.memory


def _wire_bytes(job: Job) -> float:
    """Bytes of a number of a gradient on the wire; codecs are for the way between hosts."""
    whole = job.gradient_bytes
    one_host = job.strategy.ranks <= job.cluster.per_host
    return whole if one_host else min(whole, 4 * WIRE_SHARE[job.strategy.codec])
