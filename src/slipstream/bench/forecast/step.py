"""Forecasts of replayed steps, by the simulator that forecasts everything else.

A layer that sleeps is an operator that moves as many bytes as the forecast's device moves in that
time. A bucket of DDP is one parameter: its gradient is whole when that of its last tensor is.
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

# What DDP has where nobody chooses: a small bucket first, so that communication begins early.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20
GRADIENT_BYTES = 4

# All that a replay's device has is time, so a memory that always reaches its rate.
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
    """Measured hosts of a replay.

    Args:
        count: hosts, each with a link of its own.
        per_host: ranks of each.
        between: Link of each host.
        inside: Link between the ranks of a host.
        update_bytes_per_second: Memory rate of the optimizer on each rank while all ranks update.
    """

    count: int
    per_host: int
    between: Link
    inside: Link
    update_bytes_per_second: float


def forecast_step(replayed: ReplayModel, compute_seconds: float, hosts: Hosts) -> SimulatedStep:
    """Return the forecast of a step of DDP; takes some milliseconds.

    Args:
        replayed: the model.
        compute_seconds: Seconds of the forward and backward passes together.
        hosts: Hosts of the job.
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
        replayed: the model.
        moved: bytes of all operators together, cut among them by FLOPs.
    """
    per_flop = moved / replayed.flops / (1 + BACKWARD_PER_FORWARD)
    forward = [_operator(each, TrainingPhase.FORWARD, per_flop) for each in replayed.layers]
    backwards = reversed(replayed.layers)
    backward = [_operator(each, TrainingPhase.BACKWARD, per_flop) for each in backwards]
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
    """Gradients that go together.

    Args:
        num_elements: Elements of all its gradients.
        layer: index, in forward order, of the one whose gradients come last.
    """

    num_elements: int
    layer: int


def buckets(layers: Sequence[ModelLayer]) -> Iterator[StepBucket]:
    """Yield DDP's buckets: tensors in the order of the backward pass, until there are enough.

    Source: Li et al. 2020, "PyTorch Distributed", arXiv 2006.15704.

    Args:
        layers: Layers in forward order.
    """
    held, limit = 0, FIRST_BUCKET_BYTES
    for index in reversed(range(len(layers))):
        for parameter in layers[index].parameters:
            held += parameter.num_elements
            if held * GRADIENT_BYTES >= limit:
                yield StepBucket(held, index)
                held, limit = 0, BUCKET_BYTES
    if held:
        yield StepBucket(held, 0)


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
