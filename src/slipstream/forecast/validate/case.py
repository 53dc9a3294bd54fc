"""Rows of a table of published measurements: readable rows, and rows without a forecast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from slipstream.forecast.validate.models import Sharded
from slipstream.forecast.validate.software import Precision
from slipstream.forecast.work.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCase:
    """A row of a table: a published measurement, with everything that a forecast of it needs.

    Args:
        line: Line number in the file; the header is line 1.
        source: Publisher of the measurement: text of the column `source`.
        model: Text of the column `model`.
        gpu: Text of the column `gpu`.
        framework: Text of the column `framework`.
        unit: Text of the column `unit`.
        address: Text of the column `address`.
        architecture: Name of the architecture, for
            `slipstream.forecast.trace.architectures.names.find`.
        sizes: Keyword arguments of the architecture's `make`; all but `sampled` are whole numbers.
        inputs: Keyword arguments of the architecture's `inputs`.
        precision: Precision of matrix products; a 16-bit precision means mixed precision. The text
            "AMP" is read as "fp16".
        fp8: Whether linear layers multiply in 8 bits; all other products use `precision`.
        real_data: Whether the row states that training data were read and decoded during training.
        device: Name of the device, for `slipstream.forecast.hardware.Hardware.device`.
        devices: Total number of devices.
        per_host: Number of devices in a host.
        network_gbit: Network rate of a host in Gbit/s; None if the row states no rate or has only
            one host.
        strategy: Division of the work among the devices; data parallelism if the row names no
            strategy.
        sharded: State that is divided among ranks: "head" (classes of the last layer of a face
            recogniser), "embedding" (rows of embeddings), or "none". Ranks replicate all state that
            is not divided. With "factors", no state is divided, and replicas exchange the factors
            of the gradients of linear layers.
        runtime: Name of a runtime in `slipstream.forecast.validate.software`.
        step_samples: Number of samples (or of tokens, if `unit` counts tokens) of a step on all
            devices together.
        measured: Seconds per step, or a speed-up if `measures` is "speedup".
        measures: Kind of measurement: "step" (seconds per step), "speedup" (over one device) or
            "to-target" (time of a whole training). With "to-target", `measured` is the time of the
            whole training, including evaluation and pauses, divided by the number of steps.
        channels_first: Whether channels are the first dimension of images.
        gradient_bytes: Bytes per gradient element that replicas exchange.
        raced: Whether the row was measured as in NVIDIA's MLPerf submissions: a step is launched as
            one CUDA graph, and InfiniBand switches add gradients.
        input_rate: Samples per second that a host reads; None if input never limits the step.
        memory_mb: Peak memory of a device in MiB; None if the row states none.
        group: Key that is the same for rows that differ only in their strategy.
        assumed: Names of the values, fields among them, that the row does not state and that were
            assumed.
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
        source: Text of the column `source`.
        model: Text of the column `model`.
        reason: Sentence that says which value was found and which values can be read.
    """

    line: int
    source: str
    model: str
    reason: str
