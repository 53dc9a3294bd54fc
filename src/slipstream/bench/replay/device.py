"""Simulated devices that take as much time as a GPU, by sleeping or by multiplying matrices."""

from __future__ import annotations

import time
from typing import Protocol

# If a process is late by less than this, in seconds, it has not waited for communication. The queue
# of a GPU would have kept the GPU busy in this time. Sleeps are too long by about 0.1 ms.
QUEUE_SECONDS = 0.001


class ReplayDevice(Protocol):
    """A simulated device that computes one layer after another."""

    def begin_step(self) -> None:
        """Begin a step with an idle device, so that the first layer starts immediately."""
        ...

    def compute(self, seconds: float, *, may_wait: bool) -> None:
        """Block for the compute time of a layer.

        Args:
            seconds: Seconds of the layer's compute.
            may_wait: Whether communication may have delayed the start of this layer. A layer that
                may have been delayed starts now instead of at the end of the previous layer.
        """
        ...


class Clock(Protocol):
    """Interface of a clock, with two functions of the module `time`."""

    def perf_counter(self) -> float:
        """Return seconds since a fixed moment."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Block for some seconds."""
        ...


class TimedDevice:
    """A device that sleeps until the end of each layer.

    The ends follow a schedule, so delays do not add up. As on a GPU, work of the process between
    two layers of a backward pass does not delay the second layer.

    Args:
        clock: Clock that measures time and sleeps (default: the module `time`).
    """

    def __init__(self, clock: Clock = time) -> None:
        self._clock = clock
        self._due = self._left = 0.0

    def begin_step(self) -> None:
        """Begin a step with an idle device, so that the first layer starts immediately."""
        self._due = self._left = self._clock.perf_counter()

    def compute(self, seconds: float, *, may_wait: bool) -> None:
        """Sleep until the scheduled end of the layer."""
        now = self._clock.perf_counter()
        if may_wait and now - self._left > QUEUE_SECONDS:
            self._due = max(self._due, now)
        self._due += seconds
        if self._due > now:
            self._clock.sleep(self._due - now)
        self._left = self._clock.perf_counter()


class BusyDevice:
    """A device that keeps the processor busy: it multiplies matrices instead of sleeping.

    The time of one product is measured once. A layer takes as many products as fit into its time.
    """

    SIZE = 192
    TRIALS = 50

    def __init__(self) -> None:
        import torch

        self._matrix = torch.full((self.SIZE, self.SIZE), 1 / self.SIZE)
        self._product = torch.empty_like(self._matrix)
        self._owed = 0.0
        self._unit = min(self._multiply() for _ in range(self.TRIALS))

    def begin_step(self) -> None:
        """Forget the remaining compute time, less than one matrix product, of the previous step."""
        self._owed = 0.0

    def compute(self, seconds: float, *, may_wait: bool) -> None:
        """Multiply matrices for about the time of the layer, or longer if the cores are shared."""
        self._owed += seconds
        while self._owed >= self._unit:
            self._multiply()
            self._owed -= self._unit

    def _multiply(self) -> float:
        import torch

        start = time.perf_counter()
        torch.mm(self._matrix, self._matrix, out=self._product)
        return time.perf_counter() - start
