"""How many runs of a model at a time share the cores best, when there are always more to do."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from slipstream.infer.engines import Executable
from slipstream.infer.graph.graph import Array

ROUNDS = 7
EVEN = 0.97  # ratio of rates that counts as faster: runs of their own wait for no other core either
SECONDS = 0.1  # of a round, at least
LEAST_RUNS = 2  # of each thread in a round


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

    Blocks for some seconds, and what `make` takes.
    """
    best = first
    while best.runs * 2 <= cores:
        other = Sharing(make(best.runs * 2), best.runs * 2)
        is_faster = _is_faster(other, best, inputs)
        worse, best = (best, other) if is_faster else (other, best)
        if worse is not first:
            worse.executable.close()
        if not is_faster:
            break
    return best


def _is_faster(one: Sharing, other: Sharing, inputs: Mapping[str, Array]) -> bool:
    """Whether `one` runs more inputs in a second, in most rounds. They have their turns, so what
    disturbs the machine meanwhile disturbs both."""
    for each in (one, other):
        _rate(each, inputs, 0.0)  # whatever is made at the first run is made
    ratios: list[float] = []
    for number in range(ROUNDS):
        order = (one, other) if number % 2 else (other, one)
        rates = {each.runs: _rate(each, inputs, SECONDS) for each in order}
        ratios.append(rates[one.runs] / rates[other.runs])
    return statistics.median(ratios) > EVEN


def _rate(sharing: Sharing, inputs: Mapping[str, Array], seconds: float) -> float:
    """Runs a second."""

    def several(end: float) -> int:
        count = 0
        while count < LEAST_RUNS or time.monotonic() < end:
            sharing.executable.run(inputs)
            count += 1
        return count

    with ThreadPoolExecutor(sharing.runs) as threads:
        begin = time.monotonic()
        total = sum(threads.map(several, [begin + seconds] * sharing.runs))
        return total / (time.monotonic() - begin)
