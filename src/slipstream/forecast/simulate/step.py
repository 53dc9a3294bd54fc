"""Result of the simulation of one training step."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.forecast.simulate.resources import ResourceSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """Durations of a step in seconds, on the slowest rank.

    Args:
        seconds: Whole step.
        compute: Computation on the device.
        moved: Part of `compute` that is spent in operators limited by memory bandwidth.
        tensor: Exchange between tensor-, context- and expert-parallel ranks within the passes.
        bubble: Waiting time for other pipeline stages.
        exchange: Gradient exchange that does not overlap with computation.
        optimizer: Parameter update.
        host: Time in which the device waits for the host.
        input: Time in which the device waits for input samples.
        spans: Tasks of all resources, with their start and end.
    """

    seconds: float
    compute: float
    moved: float
    tensor: float
    bubble: float
    exchange: float
    optimizer: float
    host: float
    input: float
    spans: tuple[ResourceSpan, ...]
