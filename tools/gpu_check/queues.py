"""Tests that show whether streams delay each other, and how much work fits in a stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import product

from .bench import Bench, Row
from .host_memory import MEBIBYTE, registered, words
from .operations import SIZE

OTHER_STREAMS = 32
SETTLE_SECONDS = 0.1
SMALL, LARGE = 4096, MEBIBYTE
MOST_ENQUEUED = 6000
STUCK_SECONDS = 0.3


def hold(bench: Bench, copied: int, memory: int, host: int) -> Callable[[int, int], None]:
    """Return a function that takes a stream and a word, and makes the stream wait for the word.

    Args:
        copied: Size in bytes of the copies to the device before and after the wait; 0 for no
            copies.
        memory: Device memory.
        host: Registered memory.
    """
    device = bench.device

    def act(stream: int, word: int) -> None:
        if copied:
            device.to_device(memory, host, copied, stream)
        device.wait_value(stream, word, 1)
        if copied:
            device.to_device(memory, host, copied, stream)

    return act


def works_beside(bench: Bench, memory: int, host: int) -> dict[str, Callable[[int], None]]:
    """Return the kinds of work to try on other streams while a stream waits.

    Each kind of work is a function that takes a stream and enqueues the work on it.
    """
    device, nothing = bench.device, bench.kernels.nothing()
    out = words(device, 1)[0].device
    # A kernel's first launch loads it, which must not happen while a stream waits.
    nothing(device.stream())
    # The driver treats small copies to the device differently from large ones.
    return {
        "kernel": nothing,
        "copy of 4 KiB to the host": lambda stream: device.to_host(host, memory, SMALL, stream),
        "copy of 4 KiB to the device": lambda stream: device.to_device(memory, host, SMALL, stream),
        "copy of 1 MiB to the host": lambda stream: device.to_host(host, memory, LARGE, stream),
        "copy of 1 MiB to the device": lambda stream: device.to_device(memory, host, LARGE, stream),
        "write value": lambda stream: device.write_value(stream, out, 1),
    }


def other_streams(bench: Bench, _: list[str]) -> Iterator[Row]:
    """Yield how many of `OTHER_STREAMS` streams make no progress while one or more streams wait."""
    device = bench.device
    host, memory = registered(device, SIZE).host, device.allocate(SIZE)
    works = works_beside(bench, memory, host)
    least, greatest = device.priorities()
    for copied, count, priority, work in product(
        (0, SMALL, LARGE), (1, 4), (least, greatest), works
    ):
        wait = hold(bench, copied, memory, host)
        waiting = [device.stream(priority=priority) for _ in range(count)]
        others = [device.stream(priority=least) for _ in range(OTHER_STREAMS)]
        gate = words(device, 1)[0]
        for stream in waiting:
            wait(stream, gate.device)
        for stream in others:
            works[work](stream)
        time.sleep(SETTLE_SECONDS)
        held = sum(not device.driver.is_ready("cuStreamQuery", other) for other in others)
        gate.cell.value = 1
        device.call("cuCtxSynchronize")
        yield {
            "waiting_streams": count,
            "between_copies_of_kibibytes": copied >> 10,
            "their_priority": "lowest" if priority == least else "highest",
            "work": work,
            "other_streams_of_lowest_priority": OTHER_STREAMS,
            "held_up": held,
        }
        for stream in (*waiting, *others):
            device.call("cuStreamDestroy_v2", stream)


def works_behind(bench: Bench) -> dict[str, Callable[[int], None]]:
    """Return the kinds of work to enqueue on a waiting stream, after the wait.

    Each kind of work is a function that takes a stream and enqueues the work on it.
    """
    device = bench.device
    host, memory = registered(device, SIZE).host, device.allocate(SIZE)
    out = words(device, 1)[0].device

    def chunk(stream: int) -> None:
        device.wait_value(stream, out, 0)
        device.to_device(memory, host, MEBIBYTE, stream)
        device.write_value(stream, out, 0)

    return {
        "kernel": bench.kernels.nothing(),
        "copy to the host": lambda stream: device.to_host(host, memory, 4096, stream),
        "wait value": lambda stream: device.wait_value(stream, out, 0),
        "write value": lambda stream: device.write_value(stream, out, 0),
        "wait value, copy to the device, write value": chunk,
    }


class Filler:
    """A thread that enqueues work on a stream until a call of the driver blocks.

    Args:
        enqueue: Function that enqueues one piece of work on a stream.
    """

    def __init__(self, bench: Bench, enqueue: Callable[[int], None], stream: int) -> None:
        self.bench, self.enqueue, self.stream = bench, enqueue, stream
        self.done = 0
        self.thread = threading.Thread(target=self._fill, daemon=True)
        self.thread.start()

    def _fill(self) -> None:
        self.bench.device.enter()
        while self.done < MOST_ENQUEUED:
            self.enqueue(self.stream)
            self.done += 1

    def settle(self) -> int:
        """Wait until the thread is blocked or done; return how many pieces of work it enqueued."""
        before = -1
        while self.done not in (before, MOST_ENQUEUED):
            before = self.done
            time.sleep(STUCK_SECONDS)
        return self.done


def comes_back(bench: Bench, launch: Callable[[int], None], stream: int) -> bool:
    """Return whether a new thread's launch on a stream returns within `STUCK_SECONDS`."""
    launched = threading.Event()

    def act() -> None:
        bench.device.enter()
        launch(stream)
        launched.set()

    threading.Thread(target=act, daemon=True).start()
    return launched.wait(STUCK_SECONDS)


def queue_depth(bench: Bench, _: list[str]) -> Iterator[Row]:
    """Yield how many pieces of each kind of work can be enqueued on a waiting stream.

    The next call of the driver blocks, unless `MOST_ENQUEUED` pieces are enqueued.
    """
    device = bench.device
    works = works_behind(bench)
    for work, enqueue in works.items():
        gate, stream, other = words(device, 1)[0], device.stream(), device.stream()
        works["kernel"](other)
        device.synchronize(other)
        device.wait_value(stream, gate.device, 1)
        filler = Filler(bench, enqueue, stream)
        fit = filler.settle()
        free = comes_back(bench, works["kernel"], other)
        gate.cell.value = 1
        filler.thread.join()
        device.call("cuCtxSynchronize")
        yield {
            "enqueued": work,
            "fit": fit,
            "then_the_call_blocks": fit < MOST_ENQUEUED,
            "another_thread_can_launch_on_another_stream": free,
        }
