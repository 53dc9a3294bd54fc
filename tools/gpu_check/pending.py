"""Test that shows which calls return while a stream of the same process waits."""

from __future__ import annotations

import time
from collections.abc import Iterator

from .bench import Bench, Row, rounded
from .device import NON_BLOCKING
from .host_memory import Word, map_anonymous, registered, touch, words
from .operations import OPERATIONS, SIZE, Room

RELEASE_NANOSECONDS = 500_000_000
BLOCKED_SECONDS = 0.4


def operations(bench: Bench, arguments: list[str]) -> Iterator[Row]:
    """Try operations while a stream waits; yield the result of each.

    Before each operation, its name is yielded as "starting". If no result follows, the operation
    hangs.
    """
    device = bench.device
    host = registered(device, SIZE).host
    pageable = map_anonymous(SIZE)
    room = Room(bench, device.stream(), device.allocate(SIZE), host, pageable)
    touch(pageable, SIZE)
    for name, gate in zip(arguments, words(device, len(arguments)), strict=True):
        yield {"starting": name}
        try:
            yield {"operation": name, **attempt(room, name, gate)}
        except RuntimeError as error:
            yield {"operation": name, "failed": str(error)}
        gate.cell.value = 1
        device.call("cuCtxSynchronize")


def attempt(room: Room, name: str, gate: Word) -> Row:
    """Try one operation while a stream waits for a word; return how long the operation took."""
    device = room.bench.device
    act = OPERATIONS[name](room)
    device.call("cuCtxSynchronize")
    is_ordinary = name.endswith("ordinary stream")
    waiting = device.stream(flags=0 if is_ordinary else NON_BLOCKING)
    device.wait_value(waiting, gate.device, 1)
    time.sleep(0.01)
    room.bench.loops.release_after(gate, 1, RELEASE_NANOSECONDS)
    start = time.perf_counter()
    act()
    seconds = time.perf_counter() - start
    return {
        "waits_for_the_release": seconds > BLOCKED_SECONDS,
        "milliseconds": rounded(seconds * 1e3),
    }
