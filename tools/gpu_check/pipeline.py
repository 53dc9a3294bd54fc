"""The loop that staging would run: to the host, past the CPU, back to the device, by chunks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from statistics import median

from .bench import Bench, Row, rounded
from .copies import GATE_NANOSECONDS
from .host_memory import MEBIBYTE, Region, Word, registered, words
from .loops import SECOND, Ring

TOTAL = 256 * MEBIBYTE
SLOTS = 16
ALWAYS = 1 << 30
REPEATS = 3


class Pipeline:
    """Device memory, rings of slots, streams.

    Args:
        slot: Size of a slot in bytes.
        copying: Whether the CPU copies a chunk to another slot, or passes on flags only.
    """

    def __init__(self, bench: Bench, slot: int, slots: Region, *, copying: bool) -> None:
        self.bench, self.slot, self.slots, self.copying = bench, slot, slots, copying
        self.device = bench.device
        self.down, self.up = self.device.stream(), self.device.stream()
        self.gate = words(self.device, 1)[0]
        away = SLOTS * slot if copying else 0
        landed, passed, sent = (words(self.device, SLOTS) for _ in range(3))
        self.ring = Ring(landed, passed, sent, slots.host, slots.host + away, slot)

    def enqueue(self, source: int, target: int) -> None:
        """Enqueue all chunks; each stream waits for flags of the CPU and of the other stream."""
        device, ring = self.device, self.ring
        device.wait_value(self.down, self.gate.device, 1)
        free: list[Word] = ring.passed if self.copying else ring.sent
        for i in range(TOTAL // self.slot):
            place, turn, at = i % SLOTS, i // SLOTS + 1, i * self.slot
            if turn > 1:
                device.wait_value(self.down, free[place].device, turn - 1)
            device.to_host(ring.source + place * self.slot, source + at, self.slot, self.down)
            device.write_value(self.down, ring.landed[place].device, turn)
            device.wait_value(self.up, ring.passed[place].device, turn)
            device.to_device(target + at, ring.target + place * self.slot, self.slot, self.up)
            device.write_value(self.up, ring.sent[place].device, turn)

    def run(self, source: int, target: int, threads: int) -> tuple[float, float]:
        """Return the seconds of the whole loop and those of enqueueing."""
        for word in (self.gate, *self.ring.landed, *self.ring.passed, *self.ring.sent):
            word.cell.value = 0
        chunks = TOTAL // self.slot
        relay = threading.Thread(target=self.bench.loops.relay, args=(self.ring, chunks, threads))
        relay.start()
        # The gate opens by itself, should the launch queue be full before all is enqueued.
        self.bench.loops.release_after(self.gate, 1, GATE_NANOSECONDS)
        begin = time.perf_counter()
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
    """Return how many words of the result differ from the pattern."""
    stream, wrong = bench.device.stream(), 0
    step = min(host.num_bytes, TOTAL)
    for at in range(0, TOTAL, step):
        bench.device.to_host(host.host, target + at, step, stream)
        bench.device.synchronize(stream)
        wrong += bench.loops.wrong_words(host.host, step // 4, at // 4)
    return wrong


def memory_copies(bench: Bench, slots: Region) -> Iterator[Row]:
    """Measure how fast threads of the CPU copy between slots, the GPU idle."""
    ready = words(bench.device, SLOTS)
    for word in ready:
        word.cell.value = ALWAYS
    passed, slot = words(bench.device, SLOTS), MEBIBYTE
    ring = Ring(ready, passed, ready, slots.host, slots.host + SLOTS * slot, slot)
    chunks = TOTAL // slot
    for threads in (1, 2, 4, 8):
        times = [bench.loops.relay(ring, chunks, threads) for _ in range(REPEATS)]
        yield {
            "memory_copies_by_threads": threads,
            "gigabytes_per_second": rounded(TOTAL / median(times)),
        }


def pipeline(bench: Bench, _: list[str]) -> Iterator[Row]:
    """Run the loop for several sizes of slots and numbers of threads."""
    device = bench.device
    slots = registered(device, 2 * SLOTS * 4 * MEBIBYTE)
    yield from memory_copies(bench, slots)
    source, target = device.allocate(TOTAL), device.allocate(TOTAL)
    bench.kernels.fill_pattern(source, TOTAL // 4, 0)(0)
    clear = bench.kernels.fill_pattern(target, TOTAL // 4, 7)
    for copying, threads in ((False, 1), (True, 1), (True, 2), (True, 4), (True, 8)):
        for mebibytes in (0.5, 1, 2, 4):
            loop = Pipeline(bench, int(mebibytes * MEBIBYTE), slots, copying=copying)
            clear(0)
            device.call("cuCtxSynchronize")
            found = [loop.run(source, target, threads) for _ in range(REPEATS)]
            yield {
                "cpu": "copies" if copying else "passes flags only",
                "threads": threads,
                "slot_mebibytes": mebibytes,
                "gigabytes_per_second": rounded(TOTAL / median(run[0] for run in found) / 1e9),
                "enqueue_microseconds_per_chunk": rounded(
                    median(run[1] for run in found) / (TOTAL // loop.slot) * 1e6
                ),
                "wrong_words": wrong_words(bench, target, slots),
            }
