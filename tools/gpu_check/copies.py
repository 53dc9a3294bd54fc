"""Copies between host and GPU, by copy engine and by kernels, in one and in both directions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from statistics import median

from .bench import Bench, Row, rounded
from .host_memory import MEBIBYTE, Region, Word, map_anonymous, registered, touch, words

CHUNKS = [size << 10 for size in (64, 256, 512, 1024, 2048, 4096, 16384)]
REGION = 64 * MEBIBYTE
# All copies of a measurement wait in the launch queue until the gate opens.
MOST_COPIES = 400
MOST_BYTES = 512 * MEBIBYTE
GATE_NANOSECONDS = 20_000_000
REPEATS = 3

Enqueue = Callable[[int, int], None]


@dataclass
class Flow:
    """A sequence of copies in one direction.

    Args:
        stream: Stream of the copies.
        enqueue: Function that enqueues the copy of one chunk. It takes the chunk's offset in the
            region and its size in bytes.
        first: Event that is recorded before the copies.
        last: Event that is recorded after the copies.
    """

    stream: int
    enqueue: Enqueue
    first: int
    last: int


@dataclass
class Gate:
    """A word in memory that streams wait for before they begin the measured work.

    All work is enqueued meanwhile, so the speed of launching does not limit a measurement.
    """

    bench: Bench
    word: Word
    turn: int = field(default=0)

    def close(self, streams: list[int]) -> None:
        """Make streams wait; another thread releases them after a fixed time."""
        self.turn += 1
        for stream in streams:
            self.bench.device.wait_value(stream, self.word.device, self.turn)
        self.bench.loops.release_after(self.word, self.turn, GATE_NANOSECONDS)


def span(bench: Bench, flows: list[Flow]) -> float:
    """Return the milliseconds from the start of the first flow to the end of the last flow."""
    pairs = product(flows, flows)
    return max(bench.device.milliseconds(one.first, other.last) for one, other in pairs)


def rates(bench: Bench, gate: Gate, directions: list[list[Flow]], chunk: int) -> list[float]:
    """Return the rate of each direction in GB/s while all flows run at once.

    Args:
        directions: Flows of each direction.
        chunk: Size of a chunk in bytes.
    """
    device = bench.device
    flows = [flow for direction in directions for flow in direction]
    count = min(MOST_COPIES, MOST_BYTES // chunk)
    measured: list[list[float]] = []
    for _ in range(REPEATS):
        gate.close([flow.stream for flow in flows])
        for flow in flows:
            device.record(flow.first, flow.stream)
        for i in range(count):
            for flow in flows:
                flow.enqueue(i * chunk % REGION, chunk)
        for flow in flows:
            device.record(flow.last, flow.stream)
        for flow in flows:
            device.synchronize(flow.stream)
        measured.append(
            [len(lane) * count * chunk / span(bench, lane) / 1e6 for lane in directions]
        )
    return [rounded(median(column)) for column in zip(*measured, strict=True)]


class Copies:
    """Flows (sequences of copies) between one region of host memory and two of device memory."""

    def __init__(self, bench: Bench, host: Region) -> None:
        self.bench = bench
        self.device = bench.device
        self.host = host
        self.areas = [self.device.allocate(REGION), self.device.allocate(REGION)]
        self.streams = [self.device.stream(), self.device.stream()]

    def another(self) -> Copies:
        """Return an object for further flows, on new streams, that uses the same host memory."""
        return Copies(self.bench, self.host)

    def _flow(self, place: int, enqueue: Enqueue) -> Flow:
        return Flow(self.streams[place], enqueue, self.device.event(), self.device.event())

    def engine_to_host(self) -> Flow:
        """Return a flow in which the copy engine copies to the first half of the host region."""
        device, stream, area, host = self.device, self.streams[0], self.areas[0], self.host.host
        return self._flow(0, lambda at, size: device.to_host(host + at, area + at, size, stream))

    def engine_to_device(self) -> Flow:
        """Return a flow in which the copy engine copies from the second half of the host region."""
        device, stream, area = self.device, self.streams[1], self.areas[1]
        host = self.host.host + REGION
        return self._flow(1, lambda at, size: device.to_device(area + at, host + at, size, stream))

    def _kernel(self, place: int, target: int, source: int, blocks: int) -> Flow:
        launch = self.bench.kernels.copy(target, source, REGION, blocks)
        to, from_, quads = launch.arguments

        def enqueue(at: int, size: int) -> None:
            to.value, from_.value, quads.value = target + at, source + at, size // 16
            launch(self.streams[place])

        return self._flow(place, enqueue)

    def kernel_to_host(self, blocks: int) -> Flow:
        """Return a flow in which a kernel copies to the host's memory."""
        return self._kernel(0, self.host.device, self.areas[0], blocks)

    def kernel_to_device(self, blocks: int) -> Flow:
        """Return a flow in which a kernel copies from the host's memory."""
        return self._kernel(1, self.areas[1], self.host.device + REGION, blocks)


def launch_cost(bench: Bench, gate: Gate, flow: Flow, chunk: int) -> float:
    """Return the microseconds that the CPU needs to enqueue the copy of one chunk."""
    gate.close([flow.stream])
    start = time.perf_counter()
    for i in range(200):
        flow.enqueue(i * chunk % REGION, chunk)
    seconds = time.perf_counter() - start
    bench.device.synchronize(flow.stream)
    return rounded(seconds / 200 * 1e6)


def sweep(
    bench: Bench, gate: Gate, name: str, flows: list[Flow], chunks: list[int]
) -> Iterator[Row]:
    """Yield the rates of two flows, each alone and both at once, for each chunk size."""
    down, up = flows
    for flow in flows:
        flow.enqueue(0, MEBIBYTE)
        bench.device.synchronize(flow.stream)
    for chunk in chunks:
        both = rates(bench, gate, [[down], [up]], chunk)
        yield {
            "copies": name,
            "chunk_kibibytes": chunk >> 10,
            "to_host_gigabytes_per_second": rates(bench, gate, [[down]], chunk)[0],
            "to_device_gigabytes_per_second": rates(bench, gate, [[up]], chunk)[0],
            "both_ways_to_host": both[0],
            "both_ways_to_device": both[1],
            "launch_to_host_microseconds": launch_cost(bench, gate, down, chunk),
            "launch_to_device_microseconds": launch_cost(bench, gate, up, chunk),
        }


def engines(bench: Bench, _: list[str]) -> Iterator[Row]:
    """Yield the rates at which the copy engines copy.

    The host memory is registered by the driver in one case, and allocated by it in the other.
    """
    gate = Gate(bench, words(bench.device, 1)[0])
    host = bench.device.allocate_host(2 * REGION)
    allocated = Region(host, bench.device.address_of(host), 2 * REGION)
    regions = {"registered": registered(bench.device, 2 * REGION), "allocated": allocated}
    for name, region in regions.items():
        copies = Copies(bench, region)
        flows = [copies.engine_to_host(), copies.engine_to_device()]
        yield from sweep(bench, gate, f"copy engine, {name} memory", flows, CHUNKS)


def two_streams(bench: Bench, _: list[str]) -> Iterator[Row]:
    """Yield the rates at which the copy engines copy with two streams per direction.

    A second stream may fill the gaps between the copies of the first stream.
    """
    gate = Gate(bench, words(bench.device, 1)[0])
    first = Copies(bench, registered(bench.device, 2 * REGION))
    second = first.another()
    down = [first.engine_to_host(), second.engine_to_host()]
    up = [first.engine_to_device(), second.engine_to_device()]
    for chunk in CHUNKS[1:-1]:
        both = rates(bench, gate, [down, up], chunk)
        yield {
            "copies": "copy engine, registered memory, two streams a direction",
            "chunk_kibibytes": chunk >> 10,
            "to_host_gigabytes_per_second": rates(bench, gate, [down], chunk)[0],
            "to_device_gigabytes_per_second": rates(bench, gate, [up], chunk)[0],
            "both_ways_to_host": both[0],
            "both_ways_to_device": both[1],
        }


def kernels(bench: Bench, _: list[str]) -> Iterator[Row]:
    """Yield the rates at which kernels copy to and from registered host memory.

    In the last measurements, a kernel copies to the host while a copy engine copies back.
    """
    gate = Gate(bench, words(bench.device, 1)[0])
    copies = Copies(bench, registered(bench.device, 2 * REGION))
    flows = [copies.kernel_to_host(32), copies.kernel_to_device(32)]
    yield from sweep(bench, gate, "kernel of 32 blocks, registered memory", flows, CHUNKS)
    for blocks in (2, 4, 8, 16, 64, 128):
        flows = [copies.kernel_to_host(blocks), copies.kernel_to_device(blocks)]
        name = f"kernel of {blocks} blocks, registered memory"
        yield from sweep(bench, gate, name, flows, [4 * MEBIBYTE])
    flows = [copies.kernel_to_host(32), copies.engine_to_device()]
    name = "kernel of 32 blocks to the host, copy engine to the device"
    yield from sweep(bench, gate, name, flows, [MEBIBYTE, 4 * MEBIBYTE])


def pageable(bench: Bench, _: list[str]) -> Iterator[Row]:
    """Yield the rates at which the copy engines copy ordinary (pageable) memory.

    The CPU's clock measures the time, because calls that copy pageable memory may block.
    """
    copies = Copies(bench, Region(map_anonymous(2 * REGION), 0, 2 * REGION))
    touch(copies.host.host, 2 * REGION)
    flows = {"to_host": copies.engine_to_host(), "to_device": copies.engine_to_device()}
    for chunk in (MEBIBYTE, 16 * MEBIBYTE):
        row: Row = {"copies": "copy engine, pageable memory", "chunk_kibibytes": chunk >> 10}
        for name, flow in flows.items():
            seconds: list[float] = []
            for i in range(16):
                start = time.perf_counter()
                flow.enqueue(i * chunk % REGION, chunk)
                bench.device.synchronize(flow.stream)
                seconds.append(time.perf_counter() - start)
            row[f"{name}_gigabytes_per_second"] = rounded(chunk / median(seconds) / 1e9)
        yield row
