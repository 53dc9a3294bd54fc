"""What is asked of a forecast: a model, a strategy and what it runs on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from slipstream.forecast.compute import Rates, Runtime
from slipstream.forecast.network import Cluster, Wire
from slipstream.forecast.strategy import Optimizer, Strategy
from slipstream.forecast.workload import Workload

Precision = Literal["fp32", "tf32", "fp16", "bf16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
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
    """

    workload: Workload
    strategy: Strategy
    cluster: Cluster
    precision: Precision = "fp32"
    optimizer: Optimizer = Optimizer.MOMENTUM
    runtime: Runtime = field(default_factory=Runtime)
    rates: Rates = field(default_factory=Rates)
    wire: Wire = field(default_factory=Wire)
    gradient_bytes: int = 4
    channels_first: bool = False
