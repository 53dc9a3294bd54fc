"""Test of four ways in which the GPU can signal to the CPU that copied data is complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .bench import Bench, Row, microseconds, rounded
from .device import Device
from .host_memory import MEBIBYTE, Region, Word, registered, words
from .load import LOADS, Load

ROUNDS = 10_000
BURST = 32
SOURCES = 2 * BURST
BUFFER = 256 << 10
SIZES = [4 << 10, 64 << 10, 256 << 10]
DELAY_NANOSECONDS = 10_000
MOST_MISSED = 3
# Ten thousand rounds may take longer than this beside other work.
MOST_SECONDS = 6.0

Send = Callable[[int, int, int, int], None]


@dataclass
class Setup:
    """The memory, words and stream of one experiment.

    Args:
        gate: Word for which the stream waits, until the CPU writes the word.
        ready: Word that a signal sets.
        host: Memory to which data is copied.
        source: Address of the source buffers on the device; buffer k contains the words k, k + 1,
            ...
        stream: Stream of copies and signals, of the highest priority.
    """

    bench: Bench
    gate: Word
    ready: Word
    host: Region
    source: int
    stream: int


def set_up(bench: Bench) -> Setup:
    """Return new memory, filled with patterns, together with new words and a new stream."""
    device = bench.device
    source = device.allocate(SOURCES * BUFFER)
    for k in range(SOURCES):
        bench.kernels.fill_pattern(source + k * BUFFER, BUFFER // 4, k)(0)
    device.call("cuCtxSynchronize")
    gate, ready = words(device, 2)
    stream = device.stream(priority=device.priorities()[1])
    return Setup(bench, gate, ready, registered(device, BURST * BUFFER), source, stream)


def senders(setup: Setup) -> dict[str, Send]:
    """Return, for each kind of signal, a function that enqueues a copy and then the signal.

    Each function takes the index of the buffer on the host, the index of the source buffer, the
    number of bytes, and the value of the signal. Each signal's value is the previous signal's value
    plus one.
    """
    device, stream, ready = setup.bench.device, setup.stream, setup.ready
    flag = setup.bench.kernels.set_flag(ready.device)
    store = setup.bench.kernels.copy_and_flag(0, 0, 0, ready.device)

    def copy(buffer: int, source: int, size: int) -> None:
        at = setup.source + source * BUFFER
        device.to_host(setup.host.host + buffer * BUFFER, at, size, stream)

    def write_value(buffer: int, source: int, size: int, value: int) -> None:
        copy(buffer, source, size)
        device.write_value(stream, ready.device, value)

    def flag_kernel(buffer: int, source: int, size: int, value: int) -> None:
        copy(buffer, source, size)
        flag.arguments[-1].value = value
        flag(stream)

    def storing_kernel(buffer: int, source: int, size: int, value: int) -> None:
        target, from_, quads = store.arguments[:3]
        target.value = setup.host.device + buffer * BUFFER
        from_.value = setup.source + source * BUFFER
        quads.value = size // 16
        store.arguments[-1].value = value
        store(stream)

    def host_function(buffer: int, source: int, size: int, _: int) -> None:
        copy(buffer, source, size)
        device.call("cuLaunchHostFunc", stream, setup.bench.loops.raise_word, ready.host)

    return {
        "write value": write_value,
        "flag kernel": flag_kernel,
        "storing kernel": storing_kernel,
        "host function": host_function,
    }


def one_at_a_time(setup: Setup, send: Send, loads: list[Load]) -> Row:
    """Release a copy, await its signal and check its data, ten thousand times."""
    device, loops = setup.bench.device, setup.bench.loops
    times: list[int] = []
    early = missed = 0
    value = first = setup.ready.cell.value
    deadline = time.monotonic() + MOST_SECONDS
    while value < first + ROUNDS and time.monotonic() < deadline and missed < MOST_MISSED:
        value += 1
        size, source = SIZES[value % len(SIZES)], value % SOURCES
        for load in loads:
            load.top_up()
        device.wait_value(setup.stream, setup.gate.device, value)
        send(0, source, size, value)
        took = loops.release_and_await(setup.gate, setup.ready, value, delay=DELAY_NANOSECONDS)
        if took < 0:
            missed += 1
            device.synchronize(setup.stream)
            continue
        times.append(took)
        early += loops.wrong_words(setup.host.host, size // 4, source) != 0
    return {"signals": value - first, "missed": missed, "early": early, **microseconds(times)}


def in_bursts(setup: Setup, send: Send, loads: list[Load], first: int) -> Row:
    """Enqueue copies and signals without a pause, and check each buffer when its signal arrives."""
    device, loops = setup.bench.device, setup.bench.loops
    early = missed = sent = 0
    deadline = time.monotonic() + MOST_SECONDS
    start = time.perf_counter()
    while sent < ROUNDS and time.monotonic() < deadline and missed < MOST_MISSED:
        seed = sent // BURST % 2 * BURST
        size = SIZES[sent // BURST % len(SIZES)]
        for load in loads:
            load.top_up()
        for k in range(BURST):
            send(k, seed + k, size, first + sent + k + 1)
        num_early = loops.check_burst(
            *[setup.ready.host, first + sent + 1, BURST, setup.host.host],
            *[BUFFER, size // 4, seed, 1_000_000_000],
        )
        sent += BURST
        early += max(num_early, 0)
        missed += num_early < 0
        device.synchronize(setup.stream)
    seconds = time.perf_counter() - start
    return {
        "burst_signals": sent,
        "burst_missed": missed,
        "burst_early": early,
        "burst_microseconds_per_signal": rounded(seconds / max(sent, 1) * 1e6),
    }


def signals(bench: Bench, arguments: list[str]) -> Iterator[Row]:
    """Yield, for each kind of signal, how often it came too early or not at all, under a load."""
    name = arguments[0]
    loads = LOADS[name](bench)
    for signal in ("write value", "flag kernel", "storing kernel", "host function"):
        setup = set_up(bench)
        send = senders(setup)[signal]
        # A kernel's first launch loads it, which must not happen while a stream waits.
        send(0, 0, SIZES[0], 1)
        bench.device.synchronize(setup.stream)
        before = sum(load.done for load in loads)
        start = time.perf_counter()
        row: Row = {"signal": signal, "load": name, **one_at_a_time(setup, send, loads)}
        row |= in_bursts(setup, send, loads, setup.ready.cell.value)
        done = sum(load.done for load in loads) - before
        yield row | {"load_pieces_per_second": rounded(done / (time.perf_counter() - start))}
        bench.device.call("cuCtxSynchronize")


def round_trips(bench: Bench, _: list[str]) -> Iterator[Row]:
    """Yield the times from releasing a waiting stream until the CPU sees that the stream went on.

    The CPU polls a word that the stream writes or, in the last measurement, an event.
    """
    setup = set_up(bench)
    device = bench.device
    spin = bench.kernels.spin_until(setup.gate.device)

    def wait(value: int) -> None:
        device.wait_value(setup.stream, setup.gate.device, value)

    def spin_kernel(value: int) -> None:
        spin.arguments[-1].value = value
        spin(setup.stream)

    def to_device(size: int) -> Callable[[], None]:
        return lambda: device.to_device(setup.source, setup.host.host, size, setup.stream)

    cases: dict[str, tuple[Callable[[int], None], Callable[[], None]]] = {
        "wait value, write value": (wait, lambda: None),
        "wait value, 4 KiB to the device, write value": (wait, to_device(4 << 10)),
        "wait value, 1 MiB to the device, write value": (wait, to_device(MEBIBYTE)),
        "kernel that spins, write value": (spin_kernel, lambda: None),
    }
    value = 0
    for name, (hold, act) in cases.items():
        times: list[int] = []
        deadline = time.monotonic() + MOST_SECONDS
        while len(times) < ROUNDS and time.monotonic() < deadline:
            value += 1
            hold(value)
            act()
            device.write_value(setup.stream, setup.ready.device, value)
            times.append(
                bench.loops.release_and_await(
                    setup.gate, setup.ready, value, delay=DELAY_NANOSECONDS
                )
            )
        missed = sum(time < 0 for time in times)
        yield {"round_trip": name, "rounds": len(times), "missed": missed, **microseconds(times)}
    yield {"round_trip": "wait value, event query", **microseconds(by_event(setup, value))}


def by_event(setup: Setup, value: int) -> list[int]:
    """Return the nanoseconds from releasing a waiting stream until its next event is complete."""
    device: Device = setup.bench.device
    event = device.event(flags=2)
    times: list[int] = []
    for turn in range(value + 1, value + ROUNDS + 1):
        device.wait_value(setup.stream, setup.gate.device, turn)
        device.record(event, setup.stream)
        start = time.perf_counter_ns()
        setup.gate.cell.value = turn
        while not device.is_done(event):
            pass
        times.append(time.perf_counter_ns() - start)
    return times
