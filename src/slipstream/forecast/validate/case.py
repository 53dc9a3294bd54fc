"""A measurement that can be forecast, and a row that cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from slipstream.forecast.validate.models import Sharded
from slipstream.forecast.validate.software import Precision
from slipstream.forecast.work.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A measurement, and all that a forecast of it needs.

    Args:
        line: in the file; the header's is 1.
        source: who published it, as in the table.
        model: as in the table.
        gpu: as in the table.
        framework: as in the table.
        unit: as in the table.
        address: as in the table.
        architecture: as `slipstream.forecast.trace.architectures.names.find` knows it.
        sizes: keywords of its `make`; whole numbers, but for `sampled`.
        inputs: keywords of its `inputs`.
        precision: of products; 16 bits are mixed precision, "AMP" is "fp16".
        fp8: linear layers multiply in 8 bits, all else as `precision` says.
        real_data: the row says that data were read and decoded meanwhile.
        device: as `slipstream.forecast.hardware.Hardware.device` knows it.
        devices: in all.
        per_host: devices of a host.
        network_gbit: of a host, in gigabits per second; None: not stated, or one host.
        strategy: over devices; replicas where nothing else is stated.
        sharded: what ranks share out though all else is replicated: classes of the last layer of
            a recognition of faces, or rows of embeddings; "factors": nothing, and linear layers
            exchange the factors of their gradients.
        runtime: of those in `slipstream.forecast.validate.software`.
        step_samples: of a step on all devices, or tokens where tokens are measured.
        measured: seconds per step; a speed-up where `measures` says so.
        measures: "step"; "speedup": over one device; "to-target": seconds per step are those of a
            whole training over its steps, with evaluation and all else between.
        channels_first: images are laid out so.
        gradient_bytes: Bytes of a number of a gradient that replicas exchange.
        raced: a step is issued as one CUDA graph, and InfiniBand's switches add gradients.
        input_rate: samples per second that a host reads; None: as many as are needed.
        memory_mb: peak of a device in MiB; None: not stated.
        group: equal for rows that differ in their strategy only.
        assumed: fields, and other numbers by name, that the row does not state.
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
    """A row that is not a case.

    Args:
        line: in the file; the header's is 1.
        source: as in the table.
        model: as in the table.
        reason: what was met, and what can be read.
    """

    line: int
    source: str
    model: str
    reason: str
