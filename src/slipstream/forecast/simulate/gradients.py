"""Exchange of gradients between replicas: its duration, and the part that is not overlapped.

Source: Li et al. 2020, "PyTorch Distributed", arXiv 2006.15704, for buckets; Jiang et al. 2020,
"BytePS", USENIX OSDI, for parameter servers; Stich 2018, "Local SGD", arXiv 1805.09767; Hashemi et
al. 2019, "TicTac", arXiv 1803.03288, for the order in which an overlapping exchange sends
parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slipstream.forecast.simulate.coding import coding_seconds, wire_bytes
from slipstream.forecast.simulate.compute import FloatArray
from slipstream.forecast.simulate.job import TrainingJob
from slipstream.forecast.simulate.network import Dimension, all_reduce, dimensions, reduce_scatter
from slipstream.forecast.simulate.resources import Resources
from slipstream.forecast.work.strategy import Agreement, Exchange
from slipstream.forecast.work.workload import TrainedParameter, TrainingPhase, Workload

# Bytes per second that the CPUs of a parameter server add. With 6, 8, 12, 18 and 24e9, the mean
# error on the 43 published measurements with parameter servers is 11.9, 11.3, 10.9, 10.9 and
# 11.1 %.
_SUM_RATE = 12e9
# Bytes per second between a device and the memory of its host over PCI Express 3.0 x16. NCCL
# assumes this rate (PCI_BW in its src/graph/topo.h); the nominal rate is 15.75 GB/s.
_HOST_RATE = 12e9


@dataclass(frozen=True, slots=True)
class GradientBucket:
    """Gradients that are exchanged together.

    Args:
        numbers: Number of elements.
        ready: Index of the operator that completes the last gradient of the bucket.
        needed: Index of the first operator in the forward pass that reads a parameter of the
            bucket.
        shared: Whether the parameters belong to experts; fewer ranks replicate experts than other
            layers.
    """

    numbers: float
    ready: int
    needed: int
    shared: bool


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Times of a pipeline rank's last micro-batch, in seconds.

    Args:
        start: Start of the last backward pass.
        end: End of the last backward pass.
        after: End of each operator, relative to the start of the backward pass, by operator index.
        forward: End of each operator, relative to the start of the forward pass, by operator index.
    """

    start: float
    end: float
    after: FloatArray
    forward: FloatArray


class GradientExchange:
    """Buckets of a workload's gradients and their exchange.

    Args:
        workload: Operators and tensors of one tensor-parallel rank, for one micro-batch.
        rank_of: Pipeline rank of each operator.
        experts: Names of the expert parameters; replicas divide the experts among themselves.
    """

    def __init__(self, workload: Workload, rank_of: Sequence[int], experts: frozenset[str]) -> None:
        self._trained = workload.gradients()
        self._rank_of = rank_of
        self._experts = experts
        self._buckets: dict[tuple[object, ...], list[GradientBucket]] = {}
        self._first: dict[int, int] = {}
        for index, operator in enumerate(workload.operators):
            if operator.phase is TrainingPhase.FORWARD:
                for value in operator.reads:
                    self._first.setdefault(value, index)

    def buckets(self, rank: int, bucket_bytes: int, apart: frozenset[str]) -> list[GradientBucket]:
        """Return the buckets of a pipeline rank, sorted by the time when they become ready.

        Args:
            rank: Index of the pipeline rank.
            bucket_bytes: Size at which a bucket is full, in bytes of fp32 gradients.
            apart: Names of parameters that are exchanged separately, outside the buckets.
        """
        key = rank, bucket_bytes, apart
        if key not in self._buckets:
            of_rank = [
                parameter
                for parameter in self._trained
                if self._rank_of[parameter.ready] == rank and parameter.name not in apart
            ]
            dense = [parameter for parameter in of_rank if parameter.name not in self._experts]
            sparse = [parameter for parameter in of_rank if parameter.name in self._experts]
            filled = [
                *self._filled(dense, bucket_bytes, shared=False),
                *self._filled(sparse, bucket_bytes, shared=True),
            ]
            self._buckets[key] = sorted(filled, key=lambda bucket: bucket.ready)
        return self._buckets[key]

    def _filled(
        self, parameters: Sequence[TrainedParameter], bucket_bytes: int, *, shared: bool
    ) -> Iterable[GradientBucket]:
        numbers, needed = 0.0, len(self._rank_of)
        for index, parameter in enumerate(parameters):
            numbers += parameter.elements
            needed = min(needed, self._first.get(parameter.value, 0))
            if numbers * 4 >= bucket_bytes or index + 1 == len(parameters):
                yield GradientBucket(numbers, parameter.ready, needed, shared)
                numbers, needed = 0.0, len(self._rank_of)

    def exchange(self, job: TrainingJob, ranks: Sequence[PassTimes], queues: Resources) -> float:
        """Schedule the gradient exchange, and return when the next step may start.

        The result is in seconds since the start of this step.

        Args:
            job: Job with its strategy and cluster.
            ranks: Times of the last micro-batch on each pipeline rank.
            queues: Timelines of the network, to which the exchange is added.
        """
        strategy = job.strategy
        if strategy.data * strategy.context == 1:
            return 0.0
        apart = frozenset(name for name, _ in strategy.layers)
        return max(
            self._rank(job, number, rank, apart, queues) for number, rank in enumerate(ranks)
        )

    def _rank(
        self,
        job: TrainingJob,
        number: int,
        rank: PassTimes,
        apart: frozenset[str],
        queues: Resources,
    ) -> float:
        strategy, overlap = job.strategy, job.runtime.overlap
        buckets = self.buckets(number, strategy.bucket_bytes, apart)
        seconds = [bucket_seconds(job, bucket) for bucket in buckets]
        queue = f"network {number}"
        if strategy.exchange is Exchange.LOCAL:
            # Parameters are averaged once per period; each step of the period gets an equal share
            # of that time.
            mean = sum(seconds) / strategy.period
            return queues.run(queue, "average", mean, rank.end)
        whens = [min(rank.end, rank.start + float(rank.after[bucket.ready])) for bucket in buckets]
        if strategy.across:
            return _across(
                rank, buckets, whens, [duration * overlap for duration in seconds], queues, queue
            )
        word = "reduce-scatter" if strategy.zero else Exchange(strategy.exchange).value
        for duration, when in zip(seconds, whens, strict=True):
            queues.run(queue, word, duration * overlap, when)
        visible = sum(seconds) * (1 - overlap)
        if strategy.zero == 2:
            # Each micro-batch exchanges its gradients.
            backward = rank.end - rank.start
            late = max(0.0, sum(seconds) * overlap - backward)
            visible += (strategy.micro_batches - 1) * (visible + late)
        return queues.run(queue, word, visible, rank.end)


def _across(
    rank: PassTimes,
    buckets: Sequence[GradientBucket],
    whens: Sequence[float],
    seconds: Sequence[float],
    queues: Resources,
    queue: str,
) -> float:
    """Schedule a gradient exchange that continues during the next forward pass.

    Return the start of that forward pass in seconds since the start of the step. Gradients of
    parameters that the forward pass reads first are sent first. The forward pass starts late enough
    to never wait for a gradient.
    """
    left: list[tuple[int, float]] = []
    begin = rank.end
    for bucket, when, duration in zip(buckets, whens, seconds, strict=True):
        if max(when, queues.free(queue)) < rank.end:
            queues.run(queue, "all-reduce", duration, when)
        else:
            left.append((bucket.needed, duration))
    for needed, duration in sorted(left):
        end = queues.run(queue, "all-reduce", duration, rank.end)
        slack = float(rank.forward[needed - 1]) if needed else 0.0
        begin = max(begin, end - slack)
    # A step takes at least as long as the network needs for one exchange.
    return max(begin, sum(seconds))


def bucket_seconds(job: TrainingJob, bucket: GradientBucket) -> float:
    """Return the seconds that the exchange of a bucket takes.

    The exchange is a reduce-scatter if replicas shard the optimizer states.

    Args:
        job: Job with its strategy and cluster.
        bucket: Bucket to exchange.
    """
    strategy = job.strategy
    num_bytes = bucket.numbers * wire_bytes(job)
    group = replicas(job, shared=bucket.shared)
    if strategy.exchange is Exchange.PARAMETER_SERVER:
        sent = served(num_bytes, job)
    elif strategy.zero:
        sent = reduce_scatter(num_bytes, group, job.wire)
    else:
        sent = all_reduce(num_bytes, group, job.wire)
    return max(sent, coding_seconds(bucket.numbers, job))


def gathered(job: TrainingJob, numbers: float) -> float:
    """Return the seconds of the all-gather of updated parameters if optimizer states are sharded.

    Args:
        job: Job with its strategy and cluster.
        numbers: Number of parameters of a rank.
    """
    strategy = job.strategy
    # Pipeline stages gather their sharded parameters once per step and keep them (torchtitan/
    # distributed/fsdp.py, get_fsdp_reshard_after_forward_policy).
    if strategy.zero == 0 or (strategy.zero == 3 and strategy.pipeline == 1):
        return 0.0
    return reduce_scatter(numbers * job.gradient_bytes, replicas(job), job.wire)


def replicas(job: TrainingJob, *, shared: bool = False) -> tuple[Dimension, ...]:
    """Return the dimensions of the group of ranks that replicate the same parameters.

    The dimensions are the ranks within a host and the hosts; see `network.Dimension`.

    Args:
        job: Job with its strategy and cluster.
        shared: Whether the parameters belong to experts (default False).
    """
    strategy = job.strategy
    share = strategy.expert if shared else 1
    size = strategy.data * strategy.context // share
    return dimensions(job.cluster, job.wire, size, strategy.tensor * share)


def served(num_bytes: float, job: TrainingJob) -> float:
    """Return the seconds of an exchange through parameter servers on the hosts.

    The devices of a host first add their gradients. A host that is also a server does not send the
    part of the gradients that it sums itself. Hosts send and servers add at the same time, so the
    result is the longer of the two durations.

    Args:
        num_bytes: Size in bytes of the gradients of each rank.
        job: Job with its cluster, in which the number of parameter servers is `strategy.servers`.
    """
    strategy, cluster, wire = job.strategy, job.cluster, job.wire
    per_host = min(strategy.ranks, cluster.per_host)
    hosts = -(-strategy.ranks // cluster.per_host)
    inside = min(cluster.inside.gbyte_per_s * 1e9 * wire.inside, _HOST_RATE)
    seconds = wire.launch_us * 1e-6
    if per_host > 1 and job.runtime.sums:
        group = dimensions(cluster, wire, per_host)
        copied = 2 * num_bytes / per_host / _HOST_RATE
        seconds += max(2 * reduce_scatter(num_bytes, group, wire), copied)
    elif per_host > 1:
        seconds += max(2 * num_bytes / inside, per_host * num_bytes / _SUM_RATE)
    if hosts > 1 and cluster.between is not None:
        servers = min(strategy.servers or hosts, hosts)
        sent = num_bytes * ((hosts - 1) / servers + 1 - 1 / servers)
        if job.runtime.sums:
            # Servers without devices have no gradients, so each sends only the sums.
            sent = num_bytes * hosts / servers
        rate = cluster.between.gbyte_per_s * 1e9 * wire.between
        seconds += max(sent / rate, num_bytes * hosts / servers / _SUM_RATE)
        seconds += 2 * cluster.between.latency_us * 1e-6
    return seconds


def is_apart(job: TrainingJob, name: str) -> bool:
    """Return whether the strategy shards the layer of a parameter over the replicas.

    Args:
        job: Job with its strategy.
        name: Name of the parameter.
    """
    return (name, Agreement.SHARD) in job.strategy.layers
