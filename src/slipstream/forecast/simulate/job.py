"""What is asked of a forecast: a model, a strategy and what it runs on."""

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
    """What one device was measured to do.

    Args:
        rate: samples per second that it trains.
        micro_batch: samples that ran at once.
    """

    rate: float
    micro_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """One way to train a model, complete.

    Args:
        workload: one micro-batch of the whole model on one device.
        strategy: over ranks.
        cluster: of devices.
        precision: of products: "tf32" where fp32 is asked of matrix units.
        optimizer: of the parameters.
        runtime: the framework's.
        rates: that kernels reach.
        wire: what communication reaches.
        gradient_bytes: of a number of a gradient that replicas exchange.
        channels_first: images are laid out so, which matrix units do not want.
        fp8: linear layers multiply in 8 bits where others do in 16.
        pace: seconds of one device alone as measured, over those that are forecast.
        input_rate: samples per second that a host reads and decodes for its devices; None: they
            never wait for those.
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
        """Seconds in which a host reads and decodes its samples of a step."""
        if self.input_rate is None:
            return 0.0
        hosts = -(-self.strategy.ranks // self.cluster.per_host)
        return self.strategy.global_batch / hosts / self.input_rate
