"""How many runs of a model at a time share the cores best, when there are always more to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from slipstream.infer.engines import Executable
from slipstream.infer.graph import Array

SECONDS = 0.2  # that one sharing is measured for, at least
LEAST_RUNS = 3  # of each thread
GAIN = 1.03  # for which more runs at a time, and so more memory, are worth it


@dataclass(frozen=True)
class Sharing:
    """An executable, and how many calls of it run at a time."""

    executable: Executable
    runs: int


def fastest_sharing(
    first: Sharing,
    inputs: Mapping[str, Array],
    cores: int,
    make: Callable[[int], Executable],
) -> Sharing:
    """The sharing that runs most inputs in a second: twice as many runs at a time on half the cores
    each, as long as that is faster.

    Whatever is done before and after a run takes the same time in all, so only runs are measured.

    Args:
        first: stays open, whatever is found.
        inputs: of one run.
        cores: that all runs share.
        make: an executable for so many runs at a time. Those that are not chosen are closed.

    Blocks for a second or so, and what `make` takes.
    """
    best, rate = first, _rate(first, inputs)
    while best.runs * 2 <= cores:
        other = Sharing(make(best.runs * 2), best.runs * 2)
        other_rate = _rate(other, inputs)
        worse, best = (best, other) if other_rate > GAIN * rate else (other, best)
        if worse is not first:
            worse.executable.close()
        if worse is other:
            break
        rate = other_rate
    return best


def _rate(sharing: Sharing, inputs: Mapping[str, Array]) -> float:
    """Runs a second."""

    def several(end: float) -> int:
        count = 0
        while count < LEAST_RUNS or time.monotonic() < end:
            sharing.executable.run(inputs)
            count += 1
        return count

    with ThreadPoolExecutor(sharing.runs) as threads:
        list(threads.map(several, [0.0] * sharing.runs))  # warm-up: every thread has what it needs
        begin = time.monotonic()
        total = sum(threads.map(several, [begin + SECONDS] * sharing.runs))
        return total / (time.monotonic() - begin)
