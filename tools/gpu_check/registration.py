"""The cost of registering and of unregistering memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from .bench import Bench, Row, rounded
from .host_memory import MEBIBYTE, map_anonymous, map_memfd, touch, unmap

SIZES = [size * MEBIBYTE for size in (16, 256, 1024)]


def seconds_of(action: Callable[[], None]) -> float:
    """Return the time in seconds that an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def costs(bench: Bench, make: Callable[[], int], num_bytes: int) -> Row:
    """Measure the time to register, unregister and first touch memory, in seconds per GiB."""
    device = bench.device
    address = make()
    untouched = seconds_of(lambda: device.register(address, num_bytes))
    unregister = seconds_of(lambda: device.unregister(address))
    unmap(address, num_bytes)
    address = make()
    first_touch = seconds_of(lambda: touch(address, num_bytes))
    touched = seconds_of(lambda: device.register(address, num_bytes))
    device.unregister(address)
    unmap(address, num_bytes)
    per_gibibyte = (1 << 30) / num_bytes
    return {
        "register_untouched_seconds_per_gibibyte": rounded(untouched * per_gibibyte),
        "first_touch_seconds_per_gibibyte": rounded(first_touch * per_gibibyte),
        "register_touched_seconds_per_gibibyte": rounded(touched * per_gibibyte),
        "unregister_seconds_per_gibibyte": rounded(unregister * per_gibibyte),
    }


def registration(bench: Bench, _: list[str]) -> Iterator[Row]:
    """Yield the costs of registering mappings of every kind and size."""
    kinds: dict[str, Callable[[int], int]] = {
        "memfd": lambda size: map_memfd(size),
        "memfd, huge pages": lambda size: map_memfd(size, huge=True),
        "anonymous": lambda size: map_anonymous(size),
        "anonymous, transparent huge pages": lambda size: map_anonymous(size, huge=True),
    }
    for kind, make in kinds.items():
        for size in SIZES:
            row: Row = {"memory": kind, "mebibytes": size // MEBIBYTE}
            try:
                row |= costs(bench, lambda make=make, size=size: make(size), size)
            except OSError as error:
                row["failed"] = str(error)
            yield row
