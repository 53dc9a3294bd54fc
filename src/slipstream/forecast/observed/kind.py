"""The kind of a training: runs of one kind are forecast with the same error."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from slipstream.forecast.options import ForecastOptions
from slipstream.forecast.search.machines import HostType
from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.work.workload import TrainingPhase, Workload

_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKind:
    """The kind of a training: its model, its arithmetic, and the devices of a host.

    A model is known by its numbers of parameters and FLOPs, so the same model in another file is
    the same, and a changed model is another one.

    Args:
        num_parameters: Number of parameters of the model.
        forward_flops: Number of FLOPs of the forward pass of one sample.
        precision: Data type of matrix products.
        optimizer: Name of the optimizer.
        runtime: Name of the framework.
        device: Name of the devices.
        per_host: Number of devices of a host.
        alone: Measured throughput of one device, such as "410@64", or "" if none is given.
        input_rate: Samples per second that a host reads, or 0 if they are not limited.
        tables: Digest of the parameters and of the description of the device. A forecast with
            other ones has another error.
    """

    num_parameters: int
    forward_flops: int
    precision: str
    optimizer: str
    runtime: str
    device: str
    per_host: int
    alone: str
    input_rate: float
    tables: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """The part of a training in which runs of one kind differ, besides their strategies.

    Args:
        hosts: Number of hosts.
        batch: Number of samples per step over all devices.
        network: Name of the network between the hosts, or "" for one host.
    """

    hosts: int
    batch: int
    network: str


def kind_of(
    workload: Workload, machine: HostType, options: ForecastOptions, parameters: Parameters
) -> RunKind:
    """Return the kind of a training.

    Args:
        workload: Model, traced with any number of samples.
        machine: Type of every host.
        options: Options of the forecast.
        parameters: Calibrated parameters.
    """
    alone, device = options.alone, machine.cluster.device
    rates = device.model_dump(exclude={"aliases", "year", "source"})
    known = (parameters.rates, parameters.wire, parameters.runtime(options.runtime), rates)
    return RunKind(
        num_parameters=int(workload.num_parameters),
        forward_flops=round(workload.flops(TrainingPhase.FORWARD) / workload.samples),
        precision=machine.precision,
        optimizer=options.optimizer,
        runtime=options.runtime,
        device=device.name,
        per_host=machine.cluster.per_host,
        alone="" if alone is None else f"{alone[0]:g}@{alone[1]}",
        input_rate=options.input_rate or 0.0,
        tables=hashlib.sha256(repr(known).encode()).hexdigest()[:_DIGITS],
    )


def setup_of(machine: HostType, hosts: int, batch: int) -> RunSetup:
    """Return the setup of a training.

    Args:
        machine: Type of every host.
        hosts: Number of hosts.
        batch: Number of samples per step over all devices.
    """
    between = machine.cluster.between
    network = between.name if between is not None and hosts > 1 else ""
    return RunSetup(hosts=hosts, batch=batch, network=network)
