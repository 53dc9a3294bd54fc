"""Published measurements of a table: those that can be forecast, and those that cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from slipstream.forecast.validate.models import Sharded
from slipstream.forecast.validate.software import Precision
from slipstream.forecast.work.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCase:
    """A published measurement, read from one row of a table, with all inputs of its forecast.

    Args:
        line: Line number in the file; the header is line 1.
        source: Publisher of the measurement (column `source`).
        model: Model as the publisher describes it (column `model`).
        gpu: Device as the publisher describes it (column `gpu`).
        framework: Framework as the publisher describes it (column `framework`).
        unit: Unit of the published number, such as "images/sec" (column `unit`).
        address: Address of the publication (column `address`).
        architecture: Name of the architecture, which
            `slipstream.forecast.trace.architectures.names.find` accepts.
        sizes: Keyword arguments of `Architecture.make`, which makes the model; all but `sampled`
            are whole numbers.
        inputs: Keyword arguments of `Architecture.inputs`, which makes a batch.
        precision: Precision of matrix products; a 16-bit precision means mixed precision. The text
            "AMP" is read as "fp16".
        fp8: Whether linear layers multiply in 8 bits; all other products use `precision`.
        real_data: Whether the row states that training data were read and decoded during training.
        device: Name of the device, which `slipstream.forecast.hardware.Hardware.device` accepts.
        devices: Total number of devices.
        per_host: Number of devices in a host.
        network_gbit: Network rate of a host in Gbit/s; None if the row states no rate or has only
            one host.
        strategy: Division of the work among the devices; data parallelism if the row names no
            strategy.
        sharded: Division of the model's parameters among ranks: "none" (each rank has all
            parameters), "head" (ranks divide the classes of a face recogniser's last layer),
            "embedding" (ranks divide the rows of embedding tables), or "factors" (each rank has all
            parameters, and ranks exchange the two factors of each linear layer's gradient instead
            of the gradient).
        runtime: Name of the framework's variant (runtime), one of the names in
            `slipstream.forecast.validate.software`.
        step_samples: Number of samples (or of tokens, if `unit` counts tokens) of a step on all
            devices together.
        measured: Seconds per step, or a speed-up if `measures` is "speedup".
        measures: Kind of measurement: "step" (seconds per step), "speedup" (over one device) or
            "to-target" (time of a whole training). With "to-target", `measured` is the time of the
            whole training, including evaluation and pauses, divided by the number of steps.
        channels_first: Whether channels are the first dimension of images.
        gradient_bytes: Bytes per gradient element that replicas exchange.
        raced: Whether the training ran as in NVIDIA's MLPerf submissions: a step is launched as one
            CUDA graph, and InfiniBand switches add gradients.
        input_rate: Samples per second that a host can read; None if reading never limits the step.
        memory_mb: Peak memory of a device in MiB; None if the row states none.
        group: Text that is equal for measurements that differ only in their strategy.
        assumed: Names of the values that the row does not state and that were assumed, such as
            "batch" or "network_gbit".
    """

    line: int
    source: str
    model: str
    gpu: str
    framework: str
    unit: str
    address: str
    architecture: str
    sizes: Mapping[str, float]
    inputs: Mapping[str, int]
    precision: Precision
    fp8: bool
    real_data: bool
    device: str
    devices: int
    per_host: int
    network_gbit: float | None
    strategy: Strategy
    sharded: Sharded
    runtime: str
    step_samples: int
    measured: float
    measures: Literal["step", "speedup", "to-target"]
    channels_first: bool
    gradient_bytes: int
    raced: bool
    input_rate: float | None
    memory_mb: float | None
    group: str
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A row of a table that cannot be forecast.

    Args:
        line: Line number in the file; the header is line 1.
        source: Publisher of the measurement (column `source`).
        model: Model as the publisher describes it (column `model`).
        reason: Sentence that says which value the row has, and which values can be read instead.
    """

    line: int
    source: str
    model: str
    reason: str
