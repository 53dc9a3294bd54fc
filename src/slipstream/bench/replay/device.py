"""Simulated devices that take as much time as a GPU, by sleeping or by multiplying matrices."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from slipstream.bench.devices import CPU, settle

if TYPE_CHECKING:
    import torch

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
    """A device that multiplies matrices instead of sleeping: the processor, or a real device.

    The time of one product is measured once. A layer takes as many products as fit into its time.
    On a real device they are enqueued in the current stream. Matrices are as large as the time of a
    product on that device demands.

    Args:
        place: Device that multiplies (default: the CPU).
    """

    SIZE = 192
    TRIALS = 50
    LEAST_SECONDS = 50e-6  # of a product on a device, so that the CPU need not enqueue too many

    def __init__(self, place: torch.device | None = None) -> None:
        import torch

        self._place = place or torch.device(CPU)
        self._owed = 0.0
        self._size = self.SIZE
        self._unit = self._measured()
        while self._place.type != CPU and self._unit < self.LEAST_SECONDS:
            self._size *= 2
            self._unit = self._measured()

    def begin_step(self) -> None:
        """Forget the remaining compute time, less than one matrix product, of the previous step."""
        self._owed = 0.0

    def compute(self, seconds: float, *, may_wait: bool) -> None:
        """Multiply matrices for about the time of the layer, or longer if the cores are shared."""
        self._owed += seconds
        while self._owed >= self._unit:
            self._multiply()
            self._owed -= self._unit

    def _measured(self) -> float:
        """Return the least time of a product in seconds."""
        import torch

        self._matrix = torch.full((self._size, self._size), 1 / self._size, device=self._place)
        self._product = torch.empty_like(self._matrix)
        return min(self._timed_product() for _ in range(self.TRIALS))

    def _timed_product(self) -> float:
        settle(self._place)
        start = time.perf_counter()
        self._multiply()
        settle(self._place)
        return time.perf_counter() - start

    def _multiply(self) -> None:
        import torch

        torch.mm(self._matrix, self._matrix, out=self._product)
