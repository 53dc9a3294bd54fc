"""Plans: ways to train a model, each with its time, cost, memory and limiting factor."""

from __future__ import annotations

from dataclasses import dataclass, field

from slipstream.forecast.memory import PeakMemory
from slipstream.forecast.observed.correction import Correction
from slipstream.forecast.observed.kind import RunKind, RunSetup
from slipstream.forecast.search.machines import HostType
from slipstream.forecast.simulate.step import SimulatedStep
from slipstream.forecast.work.strategy import Strategy
from slipstream.units import GIB


@dataclass(frozen=True, slots=True)
class Interval:
    """Forecast value with its prediction interval.

    Args:
        value: Forecast value.
        low: Lower bound of the interval; one in ten measurements is lower.
        high: Upper bound of the interval; one in ten measurements is higher.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Other:
    """Strategy that was rejected in favour of a better strategy on the same hosts.

    Args:
        strategy: Rejected strategy.
        why: Reason for the rejection, with the numbers.
    """

    strategy: Strategy
    why: str


def limit_of(step: SimulatedStep) -> str:
    """Return the factor that limits a step.

    The result is "compute", "memory bandwidth", "network", "pipeline bubble", "host" or "input".

    Args:
        step: Simulated step.
    """
    parts = {
        "compute": step.compute,
        "network": step.tensor + step.exchange,
        "pipeline bubble": step.bubble,
        "host": step.host,
        "input": step.input,
    }
    largest = max(parts, key=lambda name: parts[name])
    if largest == "compute" and step.moved > step.compute / 2:
        return "memory bandwidth"
    return largest


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way to train the model.

    Args:
        machine: Type of every host.
        hosts: Number of hosts.
        strategy: Parallelism over the devices of the hosts.
        step: Simulated step.
        peak: Peak memory of the fullest device.
        seconds_per_step: Duration of one step in seconds.
        seconds_per_epoch: Duration of one epoch in seconds; None if the epoch size is unknown.
        seconds: Duration of the whole training in seconds; None if its number of steps is unknown.
        dollars: Cost of the whole training in dollars; None if the duration or the price is
            unknown.
        memory: Peak memory of the fullest device in bytes: `peak.reserved` with its interval.
        efficiency: Throughput per device, relative to the throughput of a single device.
        mfu: Model FLOPs utilisation, 0 to 1.
        limit: Factor that limits the step: "compute", "memory bandwidth", "network", "pipeline
            bubble", "host" or "input".
        kind: Kind of the training, for the comparison with other runs.
        setup: Setup of the training, likewise.
        correction: Correction by earlier runs, which the durations have; `step` is not corrected.
        others: Rejected strategies on the same hosts: the best strategy of each combination of
            parallelism and memory-saving methods. The combination of `strategy` is left out.
    """

    machine: HostType
    hosts: int
    strategy: Strategy
    step: SimulatedStep
    peak: PeakMemory
    seconds_per_step: Interval
    seconds_per_epoch: Interval | None
    seconds: Interval | None
    dollars: Interval | None
    memory: Interval
    efficiency: Interval
    mfu: Interval
    limit: str
    kind: RunKind
    setup: RunSetup
    correction: Correction = field(default_factory=Correction)
    others: tuple[Other, ...] = ()

    @property
    def devices(self) -> int:
        """Number of devices that the plan uses."""
        return self.strategy.ranks

    @property
    def is_tight(self) -> bool:
        """Whether the upper bound of the memory interval exceeds the memory of a device."""
        return self.memory.high > self.machine.cluster.device.memory_gib * GIB


@dataclass(frozen=True, slots=True)
class Remedy:
    """Change that makes a strategy fit in memory.

    Args:
        words: Human-readable description of the change.
        strategy: Strategy after the change.
        num_bytes: Memory of the fullest device in bytes.
        seconds: Duration of one step in seconds.
    """

    words: str
    strategy: Strategy
    num_bytes: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """Memory that a replica of the whole model needs, and the changes that make it fit.

    Args:
        machine: Type of every host.
        hosts: Number of hosts; every device has one replica.
        strategy: Data parallelism in which each replica runs its samples in one micro-batch.
        num_bytes: Memory in bytes that a device needs.
        is_least: Whether `num_bytes` is only a lower bound, because the exact peak was not
            computed.
        remedies: Changes that make the replicas fit, fastest first; empty if the replicas fit
            unchanged.
    """

    machine: HostType
    hosts: int
    strategy: Strategy
    num_bytes: float
    is_least: bool
    remedies: tuple[Remedy, ...]

    @property
    def fits(self) -> bool:
        """Whether the replicas fit without a change."""
        return self.num_bytes <= self.machine.cluster.device.memory_gib * GIB


@dataclass(frozen=True, slots=True)
class Loss:
    """Hosts that were rejected.

    Args:
        what: Human-readable name of the hosts.
        why: Reason for the rejection, with the numbers.
        change: Cheapest change with which the model can be trained; empty if no change is known or
            needed.
    """

    what: str
    why: str
    change: str = ""
