"""Devices that take the time of a GPU: one sleeps, the other multiplies matrices."""

from __future__ import annotations

import time
from typing import Protocol

# A process that is late by less than this has not waited for anything; the queue of a GPU would
# have kept the GPU busy meanwhile. Sleeps overshoot by about 0.1 ms.
QUEUE_SECONDS = 0.001


class ReplayDevice(Protocol):
    """A device that computes one layer after another."""

    def begin_step(self) -> None:
        """Start a step while the device is idle: the first layer of the step starts now."""
        ...

    def compute(self, seconds: float, *, may_wait: bool) -> None:
        """Block for the compute of a layer.

        Args:
            seconds: Seconds of the layer's compute.
            may_wait: Whether the layer may have had to wait for communication after the previous
                layer, so that it starts now.
        """
        ...


class Clock(Protocol):
    """A clock with the functions of the module `time`."""

    def perf_counter(self) -> float:
        """Return seconds since a fixed moment."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Block for some seconds."""
        ...


class TimedDevice:
    """A device that sleeps until the end of each layer on a schedule, so that delays do not add up.

    Work of the process between two layers of a backward pass does not delay the second layer, just
    as it would not on a GPU.

    Args:
        clock: Clock that measures and sleeps (default: the module `time`).
    """

    def __init__(self, clock: Clock = time) -> None:
        self._clock = clock
        self._due = self._left = 0.0

    def begin_step(self) -> None:
        """Start a step while the device is idle: the first layer of the step starts now."""
        self._due = self._left = self._clock.perf_counter()

    def compute(self, seconds: float, *, may_wait: bool) -> None:
        """Sleep until the end of the layer."""
        now = self._clock.perf_counter()
        if may_wait and now - self._left > QUEUE_SECONDS:
            self._due = max(self._due, now)
        self._due += seconds
        if self._due > now:
            self._clock.sleep(self._due - now)
        self._left = self._clock.perf_counter()


class BusyDevice:
    """A device that multiplies matrices, which take the time of a layer on an idle core."""

    SIZE = 192
    TRIALS = 50

    def __init__(self) -> None:
        import torch

        self._matrix = torch.full((self.SIZE, self.SIZE), 1 / self.SIZE)
        self._product = torch.empty_like(self._matrix)
        self._owed = 0.0
        self._unit = min(self._multiply() for _ in range(self.TRIALS))

    def begin_step(self) -> None:
        """Discard the fraction of a product that the previous step left over."""
        self._owed = 0.0

    def compute(self, seconds: float, *, may_wait: bool) -> None:
        """Multiply for about the time of the layer, or longer if the cores are shared."""
        self._owed += seconds
        while self._owed >= self._unit:
            self._multiply()
            self._owed -= self._unit

    def _multiply(self) -> float:
        import torch

        start = time.perf_counter()
        torch.mm(self._matrix, self._matrix, out=self._product)
        return time.perf_counter() - start
