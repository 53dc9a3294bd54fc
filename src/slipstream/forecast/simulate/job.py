"""Input of a simulation: a model, a strategy and the hardware."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from slipstream.forecast.simulate.compute import Rates, Runtime
from slipstream.forecast.simulate.network import Cluster, WireRates
from slipstream.forecast.work.strategy import Optimizer, Strategy
from slipstream.forecast.work.workload import Workload

Precision = Literal["fp32", "tf32", "fp16", "bf16"]


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """Measured throughput of one device.

    Args:
        rate: Training throughput in samples per second.
        micro_batch: Micro-batch size at which the throughput was measured.
    """

    rate: float
    micro_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """Complete description of one way to train a model.

    Args:
        workload: Workload of one micro-batch of the whole model on one device.
        strategy: Parallelism over ranks.
        cluster: Cluster of devices.
        precision: Data type of matrix products; "tf32" if matrix units compute fp32 products
            (default "fp32").
        optimizer: Optimizer of the parameters (default momentum).
        runtime: Overheads of the framework.
        rates: Calibrated rates of kernels.
        wire: Calibrated rates of communication.
        gradient_bytes: Bytes per gradient element that replicas exchange (default 4).
        channels_first: Whether images are stored channels first, which matrix units do not support
            (default False).
        fp8: Whether the linear layers of a 16-bit model multiply in 8 bits (default False).
        pace: Factor on the times of device and host: the measured time of a step on a single
            device, divided by the forecast (default 1.0: not measured).
        input_rate: Samples per second that one host reads and decodes (default None: unlimited).
    """

    workload: Workload
    strategy: Strategy
    cluster: Cluster
    precision: Precision = "fp32"
    optimizer: Optimizer = Optimizer.MOMENTUM
    runtime: Runtime = field(default_factory=Runtime)
    rates: Rates = field(default_factory=Rates)
    wire: WireRates = field(default_factory=WireRates)
    gradient_bytes: int = 4
    channels_first: bool = False
    fp8: bool = False
    pace: float = 1.0
    input_rate: float | None = None

    @property
    def input_seconds(self) -> float:
        """Seconds in which one host reads and decodes its samples of one step."""
        if self.input_rate is None:
            return 0.0
        hosts = -(-self.strategy.ranks // self.cluster.per_host)
        return self.strategy.global_batch / hosts / self.input_rate
