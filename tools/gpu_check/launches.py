"""The time that the CPU takes to enqueue each kind of work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from .bench import Bench, Row, rounded
from .device import NO_TIMING
from .host_memory import MEBIBYTE, registered, words

CALLS = 400
RELEASE_NANOSECONDS = 50_000_000


def launch_costs(bench: Bench, _: list[str]) -> Iterator[Row]:
    """Yield, for each kind of work, the time of the call that enqueues it.

    The call is measured on a running stream and on a stream that waits for a word.
    """
    device = bench.device
    stream = device.stream()
    gate, word, other = words(device, 3)
    host, memory = registered(device, MEBIBYTE).host, device.allocate(MEBIBYTE)
    event, nothing = device.event(flags=NO_TIMING), bench.kernels.nothing()
    device.record(event, device.stream())
    calls: dict[str, Callable[[], None]] = {
        "kernel": lambda: nothing(stream),
        "copy of 4 KiB to the host": lambda: device.to_host(host, memory, 4096, stream),
        "copy of 4 KiB to the device": lambda: device.to_device(memory, host, 4096, stream),
        "write value": lambda: device.write_value(stream, word.device, 0),
        "wait value, already reached": lambda: device.wait_value(stream, word.device, 0),
        "write value and wait value in a batch": lambda: device.write_and_wait(
            stream, (word.device, 0), (other.device, 0)
        ),
        "event record": lambda: device.record(event, stream),
        "wait for an event": lambda: device.call("cuStreamWaitEvent", stream, event, 0),
        "host function": lambda: device.call(
            "cuLaunchHostFunc", stream, bench.loops.raise_word, host
        ),
    }
    for turn, (name, call) in enumerate(calls.items(), 1):
        row: Row = {"enqueued": name}
        for state in ("running", "waiting"):
            call()
            device.synchronize(stream)
            if state == "waiting":
                bench.loops.release_after(gate, turn, RELEASE_NANOSECONDS)
                device.wait_value(stream, gate.device, turn)
            start = time.perf_counter()
            for _call in range(CALLS):
                call()
            seconds = time.perf_counter() - start
            device.synchronize(stream)
            row[f"microseconds_on_a_{state}_stream"] = rounded(seconds / CALLS * 1e6)
        yield row
