"""Other work that occupies the GPU during a measurement: matrix products and copies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .bench import Bench
from .copies import REGION, Copies
from .device import NO_TIMING, Device
from .host_memory import MEBIBYTE, registered

DEPTH = 3
SIZE = 4096
# About a tenth of a millisecond on an H100.
BUSY_TURNS = 2000


class Load:
    """Work that is enqueued repeatedly, so that some of it is always waiting.

    Args:
        device: GPU.
        stream: Stream of the work. After each piece of work, an event is recorded, which shows that
            the piece has ended.
        enqueue: Function that enqueues one piece of work.
    """

    def __init__(self, device: Device, stream: int, enqueue: Callable[[], None]) -> None:
        self.device = device
        self.stream = stream
        self.enqueue = enqueue
        self.spare = [device.event(flags=NO_TIMING) for _ in range(DEPTH)]
        self.pending: deque[int] = deque()
        self.done = 0

    def top_up(self) -> None:
        """Enqueue new pieces of work for those that have ended, so that `DEPTH` are enqueued."""
        while self.pending and self.device.is_done(self.pending[0]):
            self.spare.append(self.pending.popleft())
            self.done += 1
        while self.spare:
            self.enqueue()
            event = self.spare.pop()
            self.device.record(event, self.stream)
            self.pending.append(event)


def matmuls(bench: Bench) -> list[Load]:
    """Return a load of matrix products in bfloat16, by PyTorch."""
    import torch

    a, b, c = (torch.randn(SIZE, SIZE, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    stream = torch.cuda.Stream()

    def enqueue() -> None:
        with torch.cuda.stream(stream):
            torch.mm(a, b, out=c)

    torch.mm(a, b, out=c)
    torch.cuda.synchronize()
    return [Load(bench.device, stream.cuda_stream, enqueue)]


def copies(bench: Bench) -> list[Load]:
    """Return loads that copy both ways in pieces of 4 MiB."""
    size = 4 * MEBIBYTE
    flows = Copies(bench, registered(bench.device, 2 * REGION))
    pair = [flows.engine_to_host(), flows.engine_to_device()]
    return [
        Load(bench.device, flow.stream, lambda flow=flow: flow.enqueue(0, size)) for flow in pair
    ]


def busy(bench: Bench) -> list[Load]:
    """Return a load of arithmetic on every multiprocessor, without PyTorch."""
    launch = bench.kernels.busy(BUSY_TURNS)
    stream = bench.device.stream()
    return [Load(bench.device, stream, lambda: launch(stream))]


LOADS: dict[str, Callable[[Bench], list[Load]]] = {
    "idle": lambda _: [],
    "matmuls": matmuls,
    "copies": copies,
    "matmuls and copies": lambda bench: [*matmuls(bench), *copies(bench)],
    "busy": busy,
}
