"""A measurement that can be forecast, and a row that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from slipstream.forecast.validate.models import Sharded
from slipstream.forecast.validate.software import Precision
from slipstream.forecast.work.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCase:
    """A measurement, with everything that its forecast needs.

    Args:
        line: Line number in the file; the header is line 1.
        source: Publisher of the measurement, from the table.
        model: Text of this column in the table.
        gpu: Text of this column in the table.
        framework: Text of this column in the table.
        unit: Text of this column in the table.
        address: Text of this column in the table.
        architecture: Name for `slipstream.forecast.trace.architectures.names.find`.
        sizes: Keywords of the architecture's `make`; whole numbers except for `sampled`.
        inputs: Keywords of the architecture's `inputs`.
        precision: Precision of matrix products; 16 bits mean mixed precision, and "AMP" is "fp16".
        fp8: Whether linear layers multiply in 8 bits; all else has `precision`.
        real_data: Whether the row says that data were read and decoded during training.
        device: Name for `slipstream.forecast.hardware.Hardware.device`.
        devices: Total number of devices.
        per_host: Number of devices in a host.
        network_gbit: Network rate of a host in Gbit/s; None: not stated, or one host.
        strategy: Strategy over the devices; plain replicas if the row states nothing else.
        sharded: State that is divided among ranks while everything else is replicated: "head"
            (classes of the last layer of a face recogniser), "embedding" (rows of embeddings), or
            "none". With "factors" nothing is divided, and linear layers exchange the factors of
            their gradients.
        runtime: Name of a runtime in `slipstream.forecast.validate.software`.
        step_samples: Samples of a step on all devices, or tokens if the unit counts tokens.
        measured: Seconds per step, or a speed-up if `measures` is "speedup".
        measures: "step"; "speedup" over one device; or "to-target", for which seconds per step are
            the time of a whole training over its steps, including evaluation and pauses.
        channels_first: Whether channels are the first dimension of images.
        gradient_bytes: Bytes of each number of the gradients that replicas exchange.
        raced: Whether a step is issued as one CUDA graph and InfiniBand switches add gradients.
        input_rate: Samples per second that a host reads; None: input is never the limit.
        memory_mb: Peak memory of a device in MiB; None: not stated.
        group: Key that rows share if they differ only in their strategy.
        assumed: Names of fields and other numbers that the row does not state.
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
    """A row that cannot be forecast.

    Args:
        line: Line number in the file; the header is line 1.
        source: Text of this column in the table.
        model: Text of this column in the table.
        reason: Sentence that says which value was found and which values can be read.
    """

    line: int
    source: str
    model: str
    reason: str
