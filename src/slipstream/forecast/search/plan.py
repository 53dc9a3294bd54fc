"""A way to train that was forecast: what it takes, what it costs and what limits it."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.forecast.memory import Peak
from slipstream.forecast.search.machines import HostType
from slipstream.forecast.simulate.simulation import SimulatedStep
from slipstream.forecast.work.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with what it may be instead.

    Args:
        value: the forecast.
        low: below which one in ten measurements lies.
        high: above which one in ten measurements lies.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Other:
    """A strategy that was not taken.

    Args:
        strategy: on the same hosts.
        why: it lost, with the numbers.
    """

    strategy: Strategy
    why: str


def limit_of(step: SimulatedStep) -> str:
    """Returns what most of a step goes to: "compute", "memory bandwidth", "network", "pipeline
    bubble", "host" or "input".

    Args:
        step: simulated.
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
    """One way to train.

    Args:
        machine: of every host.
        hosts: that it takes.
        strategy: over their devices.
        step: simulated.
        peak: of memory, on the fullest device.
        seconds_per_step: with its interval.
        seconds_per_epoch: None: the size of an epoch is not known.
        seconds: to the target; None: it is not known.
        dollars: to the target; None: time or price is not known.
        memory: bytes on the fullest device: `peak.reserved` with its interval.
        efficiency: throughput per device, as a share of one device's own.
        mfu: model FLOPs utilisation, as a share of 1.
        others: the best strategy of each other kind on the same hosts, with why it lost.
        limit: what most of the step goes to: "compute", "memory bandwidth", "network",
            "pipeline bubble", "host" or "input".
    """

    machine: HostType
    hosts: int
    strategy: Strategy
    step: SimulatedStep
    peak: Peak
    seconds_per_step: Interval
    seconds_per_epoch: Interval | None
    seconds: Interval | None
    dollars: Interval | None
    memory: Interval
    efficiency: Interval
    mfu: Interval
    limit: str
    others: tuple[Other, ...] = ()

    @property
    def devices(self) -> int:
        """Devices that work."""
        return self.strategy.ranks

    @property
    def is_tight(self) -> bool:
        """It may take more memory than a device has, as its interval says."""
        return self.memory.high > self.machine.cluster.device.memory_gib * 2**30


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that makes a strategy fit in memory.

    Args:
        words: what is other than it was, for people.
        strategy: with the change.
        num_bytes: on the fullest device.
        seconds: of a step.
    """

    words: str
    strategy: Strategy
    num_bytes: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """Whether replicas of the whole model fit in memory, and if not, what is the cheapest change.

    Args:
        machine: of every host.
        hosts: all of whose devices have a replica.
        strategy: replicas that run their samples at once.
        num_bytes: that a device needs for it.
        is_least: it needs that at the least; how much more was not looked at.
        remedies: changes with which it fits, the fastest first; none are needed where it fits.
    """

    machine: HostType
    hosts: int
    strategy: Strategy
    num_bytes: float
    is_least: bool
    remedies: tuple[Remedy, ...]

    @property
    def does(self) -> bool:
        """It fits as it is."""
        return self.num_bytes <= self.machine.cluster.device.memory_gib * 2**30


@dataclass(frozen=True, slots=True)
class Loss:
    """A way to train that is not among the plans.

    Args:
        what: it was, for people.
        why: it lost, with the numbers.
        change: the cheapest that lets it train, for people; "": none is known, or it could.
    """

    what: str
    why: str
    change: str = ""
