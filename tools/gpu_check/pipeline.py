"""A model of staging: chunks are copied to the host, passed on by the CPU, and copied back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from .bench import Bench, Row, rounded
from .copies import GATE_NANOSECONDS
from .device import NO_TIMING
from .host_memory import MEBIBYTE, Region, registered, words
from .loops import SECOND, Ring

TOTAL = 256 * MEBIBYTE
MOST_SLOTS = 16
LARGEST_SLOT = 4 * MEBIBYTE
ALWAYS = 1 << 30
REPEATS = 3
WORD, EVENT, BATCH = "a word", "an event", "a word, in batches"


@dataclass(frozen=True)
class Shape:
    """Sizes and variants of the staging pipeline.

    Args:
        slot: Size of a slot in bytes.
        slots: Number of slots of a ring.
        threads: Number of threads of the CPU.
        copying: True if the CPU copies each chunk to a slot of a second ring; False if the CPU only
            passes on flags.
        reuse: Way in which the stream that copies to the host waits for a free slot. With `WORD`,
            the stream waits for a word; with `EVENT`, for an event of the other stream. `BATCH` is
            like `WORD`, but one call of the driver enqueues the preceding write and the wait. If
            `copying` is true, only `WORD` is possible.
    """

    slot: int
    slots: int = MOST_SLOTS
    threads: int = 1
    copying: bool = False
    reuse: str = WORD


def shapes() -> Iterator[Shape]:
    """Yield the shapes of the pipeline to measure."""
    sizes = [MEBIBYTE, 2 * MEBIBYTE, 4 * MEBIBYTE]
    yield Shape(MEBIBYTE // 2)
    for slots in (4, 8, 16):
        yield from (Shape(size, slots) for size in sizes)
    for reuse in (EVENT, BATCH):
        yield from (Shape(size, reuse=reuse) for size in (MEBIBYTE // 2, *sizes))
    yield from (Shape(MEBIBYTE, threads=threads, copying=True) for threads in (1, 2))
    for threads in (4, 8):
        for slots in (8, 16):
            yield from (Shape(size, slots, threads, copying=True) for size in sizes)


class Pipeline:
    """The rings of slots, and the streams to and from the host, of a staging pipeline.

    Args:
        slots: Memory of the rings.
    """

    def __init__(self, bench: Bench, shape: Shape, slots: Region) -> None:
        self.bench, self.shape = bench, shape
        self.device = bench.device
        self.down, self.up = self.device.stream(), self.device.stream()
        self.gate, self.unused = words(self.device, 2)
        away = shape.slots * shape.slot if shape.copying else 0
        landed, passed, sent = (words(self.device, shape.slots) for _ in range(3))
        self.ring = Ring(landed, passed, sent, slots.host, slots.host + away, shape.slot)
        self.gone = [self.device.event(flags=NO_TIMING) for _ in range(shape.slots)]

    def _await_free(self, place: int, turn: int) -> None:
        """Make the stream that copies to the host wait until a slot is free for its next chunk."""
        if turn == 1:
            return
        if self.shape.reuse == EVENT:
            self.device.call("cuStreamWaitEvent", self.down, self.gone[place], 0)
            return
        free = self.ring.passed if self.shape.copying else self.ring.sent
        self.device.wait_value(self.down, free[place].device, turn - 1)

    def enqueue(self, source: int, target: int) -> None:
        """Enqueue all copies, and waits for the flags that the CPU and the other stream set."""
        device, ring, slot = self.device, self.ring, self.shape.slot
        device.wait_value(self.down, self.gate.device, 1)
        for i in range(TOTAL // slot):
            place, turn, at = i % self.shape.slots, i // self.shape.slots + 1, i * slot
            self._await_free(place, turn)
            device.to_host(ring.source + place * slot, source + at, slot, self.down)
            device.write_value(self.down, ring.landed[place].device, turn)
            device.wait_value(self.up, ring.passed[place].device, turn)
            device.to_device(target + at, ring.target + place * slot, slot, self.up)
            if self.shape.reuse == EVENT:
                device.record(self.gone[place], self.up)
            else:
                device.write_value(self.up, ring.sent[place].device, turn)

    def enqueue_batched(self, source: int, target: int) -> None:
        """Enqueue all copies; one call of the driver enqueues each write and the wait after it."""
        device, ring, slot, slots = self.device, self.ring, self.shape.slot, self.shape.slots
        gate = (self.gate.device, 1)
        landed = sent = (self.unused.device, 0)
        for i in range(TOTAL // slot):
            place, turn, at = i % slots, i // slots + 1, i * slot
            free = gate if turn == 1 else (ring.sent[place].device, turn - 1)
            device.write_and_wait(self.down, landed, free)
            device.to_host(ring.source + place * slot, source + at, slot, self.down)
            landed = (ring.landed[place].device, turn)
            device.write_and_wait(self.up, sent, (ring.passed[place].device, turn))
            device.to_device(target + at, ring.target + place * slot, slot, self.up)
            sent = (ring.sent[place].device, turn)
        device.write_value(self.down, *landed)
        device.write_value(self.up, *sent)

    def run(self, source: int, target: int) -> tuple[float, float]:
        """Send all chunks through the pipeline; return the total and the enqueueing seconds."""
        for word in (self.gate, *self.ring.landed, *self.ring.passed, *self.ring.sent):
            word.cell.value = 0
        job = (self.ring, TOTAL // self.shape.slot, self.shape.threads)
        relay = threading.Thread(target=self.bench.loops.relay, args=job)
        relay.start()
        # The gate opens by itself, because the launch queue may be full before all is enqueued.
        self.bench.loops.release_after(self.gate, 1, GATE_NANOSECONDS)
        begin = time.perf_counter()
        if self.shape.reuse == BATCH:
            self.enqueue_batched(source, target)
        else:
            self.enqueue(source, target)
        enqueued = time.perf_counter()
        while not self.gate.cell.value:
            pass
        start = time.perf_counter()
        self.device.synchronize(self.up)
        seconds = time.perf_counter() - min(start, begin + GATE_NANOSECONDS / SECOND)
        relay.join()
        return seconds, enqueued - begin


def wrong_words(bench: Bench, target: int, host: Region) -> int:
    """Return the number of words of the result that differ from the pattern."""
    stream, wrong = bench.device.stream(), 0
    step = min(host.num_bytes, TOTAL)
    for at in range(0, TOTAL, step):
        bench.device.to_host(host.host, target + at, step, stream)
        bench.device.synchronize(stream)
        wrong += bench.loops.wrong_words(host.host, step // 4, at // 4)
    return wrong


def memory_copies(bench: Bench, slots: Region) -> Iterator[Row]:
    """Yield the rates at which threads of the CPU copy between slots while the GPU is idle."""
    ready, passed = words(bench.device, MOST_SLOTS), words(bench.device, MOST_SLOTS)
    for word in ready:
        word.cell.value = ALWAYS
    for slot in (MEBIBYTE, LARGEST_SLOT):
        away = slots.host + MOST_SLOTS * slot
        ring = Ring(ready, passed, ready, slots.host, away, slot)
        for threads in (1, 2, 4, 8):
            times = [bench.loops.relay(ring, TOTAL // slot, threads) for _ in range(REPEATS)]
            yield {
                "memory_copies_by_threads": threads,
                "mebibytes_of_both_rings": 2 * MOST_SLOTS * slot // MEBIBYTE,
                "gigabytes_per_second": rounded(TOTAL / median(times)),
            }


def pipeline(bench: Bench, _: list[str]) -> Iterator[Row]:
    """Yield the CPU's copy rates, and then the pipeline's rates for each shape."""
    device = bench.device
    slots = registered(device, 2 * MOST_SLOTS * LARGEST_SLOT)
    yield from memory_copies(bench, slots)
    source, target = device.allocate(TOTAL), device.allocate(TOTAL)
    bench.kernels.fill_pattern(source, TOTAL // 4, 0)(0)
    clear = bench.kernels.fill_pattern(target, TOTAL // 4, 7)
    for shape in shapes():
        loop = Pipeline(bench, shape, slots)
        clear(0)
        device.call("cuCtxSynchronize")
        runs = [loop.run(source, target) for _ in range(REPEATS)]
        chunks = TOTAL // shape.slot
        yield {
            "cpu": "copies" if shape.copying else "passes flags only",
            "threads": shape.threads,
            "slot_mebibytes": shape.slot / MEBIBYTE,
            "slots": shape.slots,
            "slot_is_free_after": shape.reuse,
            "gigabytes_per_second": rounded(TOTAL / median(run[0] for run in runs) / 1e9),
            "enqueue_microseconds_per_chunk": rounded(
                median(run[1] for run in runs) / chunks * 1e6
            ),
            "wrong_words": wrong_words(bench, target, slots),
        }
