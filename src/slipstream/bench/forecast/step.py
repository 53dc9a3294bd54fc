"""Forecasts of replayed training steps, made with the simulator of `slipstream.forecast`.

In a replayed step, each layer sleeps instead of computing. A layer that sleeps for some time is
modelled as an operator that moves the bytes that the device can move in this time. A bucket of DDP
is modelled as one parameter, whose gradient is complete when all gradients in the bucket are
complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slipstream.bench.limits import BACKWARD_PER_FORWARD
from slipstream.bench.models import ModelLayer, ReplayModel
from slipstream.forecast.hardware import Device, Link
from slipstream.forecast.simulate.compute import Rates, Runtime
from slipstream.forecast.simulate.job import TrainingJob
from slipstream.forecast.simulate.network import Cluster, WireRates
from slipstream.forecast.simulate.simulation import Simulation
from slipstream.forecast.simulate.step import SimulatedStep
from slipstream.forecast.work.strategy import Optimizer, Strategy
from slipstream.forecast.work.workload import (
    Operator,
    OperatorKind,
    TrainedParameter,
    TrainingPhase,
    Workload,
)

# Default of DDP, in bytes. The first bucket is small, so that communication begins early.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20
GRADIENT_BYTES = 4  # bytes of an element of a gradient

# The replayed device only sleeps, so its memory always reaches the nominal rate.
_RATES = Rates(memory=1.0, gap_us=0.0)
_RUNTIME = Runtime(
    name="replay",
    forward_us=0.0,
    backward_us=0.0,
    collective_us=0.0,
    step_ms=0.0,
    overlap=1.0,
    spread=0.0,
)
_WIRE = WireRates(inside=1.0, between=1.0, launch_us=0.0, ramp_us=0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosts:
    """Measured speed of the hosts on which a model is replayed.

    Args:
        count: Number of hosts, each with a link of its own.
        per_host: Number of ranks on each host.
        between: Link of each host.
        inside: Link between ranks of the same host.
        update_bytes_per_second: Bytes per second that the optimizer of each rank reads and writes
            while all ranks update.
    """

    count: int
    per_host: int
    between: Link
    inside: Link
    update_bytes_per_second: float


def forecast_step(replayed: ReplayModel, compute_seconds: float, hosts: Hosts) -> SimulatedStep:
    """Forecast a step of DDP; the simulation takes some milliseconds.

    Args:
        replayed: Model whose layers sleep instead of computing.
        compute_seconds: Seconds of the forward and backward passes together.
        hosts: Measured speed of the hosts.
    """
    rate = hosts.update_bytes_per_second
    workload = replay_workload(replayed, compute_seconds * rate)
    device = Device(
        name="replay",
        kind="cpu",
        memory_gib=1,
        memory_gb_per_s=rate / 1e9,
        processors=1,
        cache_mib=1,
        tflops={"float32": 1.0},
        device_link=hosts.inside.name,
        host_link=hosts.inside.name,
        year=2026,
        source="measured",
    )
    job = TrainingJob(
        workload=workload,
        strategy=Strategy(data=hosts.count * hosts.per_host, bucket_bytes=1),
        cluster=Cluster(
            device=device, per_host=hosts.per_host, inside=hosts.inside, between=hosts.between
        ),
        optimizer=Optimizer.MOMENTUM,
        runtime=_RUNTIME,
        rates=_RATES,
        wire=_WIRE,
    )
    return Simulation.of(workload).run(job)


def replay_workload(replayed: ReplayModel, moved: float) -> Workload:
    """Return the workload that the forecast simulates for a replayed model.

    Args:
        replayed: Model whose layers sleep instead of computing.
        moved: Bytes that all operators of a step together read and write. Each operator gets a
            share of the bytes in proportion to its FLOPs.
    """
    per_flop = moved / replayed.flops / (1 + BACKWARD_PER_FORWARD)
    layers = replayed.layers
    forward = [_operator(layer, TrainingPhase.FORWARD, per_flop) for layer in layers]
    backward = [_operator(layer, TrainingPhase.BACKWARD, per_flop) for layer in reversed(layers)]
    parameters = [
        TrainedParameter(
            name=f"bucket {index}",
            elements=bucket.num_elements,
            num_bytes=bucket.num_elements * GRADIENT_BYTES,
            ready=2 * len(forward) - 1 - bucket.layer,
        )
        for index, bucket in enumerate(buckets(replayed.layers))
    ]
    return Workload(
        name=replayed.name,
        samples=replayed.batch,
        operators=(*forward, *backward),
        values=(),
        parameters=tuple(parameters),
        buffer_bytes=0,
    )


@dataclass(frozen=True, slots=True)
class StepBucket:
    """Bucket of DDP: gradients that are communicated together.

    Args:
        num_elements: Number of elements of all gradients in the bucket.
        layer: Index, in forward order, of the layer whose gradients are complete last.
    """

    num_elements: int
    layer: int


def buckets(layers: Sequence[ModelLayer]) -> Iterator[StepBucket]:
    """Yield the buckets of DDP, which are filled in the order of the backward pass.

    Source: Li et al. 2020, "PyTorch Distributed", arXiv 2006.15704.

    Args:
        layers: Layers in forward order.
    """
    elements, limit = 0, FIRST_BUCKET_BYTES
    for index in reversed(range(len(layers))):
        for parameter in layers[index].parameters:
            elements += parameter.num_elements
            if elements * GRADIENT_BYTES >= limit:
                yield StepBucket(elements, index)
                elements, limit = 0, BUCKET_BYTES
    if elements:
        yield StepBucket(elements, 0)


def _operator(layer: ModelLayer, phase: TrainingPhase, per_flop: float) -> Operator:
    factor = BACKWARD_PER_FORWARD if phase is TrainingPhase.BACKWARD else 1
    return Operator(
        name="sleep",
        module=layer.name,
        phase=phase,
        kind=OperatorKind.MEMORY,
        products=(),
        reads=(),
        writes=(),
        bytes_moved=layer.flops * per_flop * factor,
        dtype="float32",
    )
