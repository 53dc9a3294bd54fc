"""Devices that take the time of a GPU: one sleeps, one multiplies matrices."""

from __future__ import annotations

import time
from typing import Protocol

# A process that is late by less than this has not waited for anything: a GPU has a queue that
# keeps it busy meanwhile. Sleeps overshoot by a tenth of a millisecond.
QUEUE_SECONDS = 0.001


class ReplayDevice(Protocol):
    """Computes one layer after another."""

    def begin_step(self) -> None:
        """Make the device idle: the next layer starts now."""
        ...

    def compute(self, seconds: float, *, may_wait: bool) -> None:
        """Block for a layer's compute.

        Args:
            seconds: Seconds of the layer's compute.
            may_wait: whether the layer may have had to wait for something since the last one
                ended, so that it starts now.
        """
        ...


class Clock(Protocol):
    """Tells the time and sleeps, as the module `time` does."""

    def perf_counter(self) -> float:
        """Return seconds since some moment."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Block for some seconds."""
        ...


class TimedDevice:
    """Sleeps until the layer is due by a schedule, so that overshoots do not add up.

    What the process does between two layers of a backward pass does not delay the second, as it
    would not on a device of its own.

    Args:
        clock: the time that layers take.
    """

    def __init__(self, clock: Clock = time) -> None:
        self._clock = clock
        self._due = self._left = 0.0

    def begin_step(self) -> None:
        """Make the device idle: the next layer starts now."""
        self._due = self._left = self._clock.perf_counter()

    def compute(self, seconds: float, *, may_wait: bool) -> None:
        """Sleep until the layer would have been computed."""
        now = self._clock.perf_counter()
        if may_wait and now - self._left > QUEUE_SECONDS:
            self._due = max(self._due, now)
        self._due += seconds
        if self._due > now:
            self._clock.sleep(self._due - now)
        self._left = self._clock.perf_counter()


class BusyDevice:
    """Multiplies matrices, as many as take the time on an idle core of this machine."""

    SIZE = 192
    TRIALS = 50

    def __init__(self) -> None:
        import torch

        self._matrix = torch.full((self.SIZE, self.SIZE), 1 / self.SIZE)
        self._product = torch.empty_like(self._matrix)
        self._owed = 0.0
        self._unit = min(self._multiply() for _ in range(self.TRIALS))

    def begin_step(self) -> None:
        """Forget the fraction of a product that the last step still owed."""
        self._owed = 0.0

    def compute(self, seconds: float, *, may_wait: bool) -> None:
        """Multiply for about the time of the layer, longer where others use the cores."""
        self._owed += seconds
        while self._owed >= self._unit:
            self._multiply()
            self._owed -= self._unit

    def _multiply(self) -> float:
        import torch

        start = time.perf_counter()
        torch.mm(self._matrix, self._matrix, out=self._product)
        return time.perf_counter() - start
