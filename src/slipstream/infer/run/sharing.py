"""Measure which number of simultaneous runs of a model gives the most runs per second."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from slipstream.infer.engines import Executable
from slipstream.infer.graph.graph import Array

# These four constants are chosen by hand, not measured.
ROUNDS = 7  # number of rounds, each of which times both sharings
EVEN = 0.97  # a ratio of rates above this counts as faster, so more runs win at equal rates
SECONDS = 0.1  # least duration of a round
LEAST_RUNS = 2  # least number of runs of each thread in a round


@dataclass(frozen=True)
class Sharing:
    """A way to share the cores: an executable, and the number of simultaneous calls of it."""

    executable: Executable
    runs: int


def fastest_sharing(
    first: Sharing,
    inputs: Mapping[str, Array],
    cores: int,
    make: Callable[[int], Executable],
) -> Sharing:
    """Return the sharing of the cores with the most runs per second.

    The search starts from `first`, and doubles the number of simultaneous runs as long as the
    result is faster. Only the time of runs is measured, because the work before and after a run
    takes the same time in every sharing. The call blocks for a few seconds, and for the time that
    `make` takes.

    Args:
        first: Sharing with which the search begins. The executable of `first` stays open in any
            case.
        inputs: Inputs of one run.
        cores: Number of cores that all runs share.
        make: Function that returns an executable for a number of simultaneous runs. The executables
            of `make` that are not chosen are closed.
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
    """Tell whether the sharing `one` is faster than the sharing `other` in the median round.

    The two sharings run alternately, so a disturbance of the machine affects both.
    """
    for sharing in (one, other):
        _rate(sharing, inputs, 0.0)  # the first run may still allocate or compile
    ratios: list[float] = []
    for number in range(ROUNDS):
        order = (one, other) if number % 2 else (other, one)
        rates = {sharing.runs: _rate(sharing, inputs, SECONDS) for sharing in order}
        ratios.append(rates[one.runs] / rates[other.runs])
    return statistics.median(ratios) > EVEN


def _rate(sharing: Sharing, inputs: Mapping[str, Array], seconds: float) -> float:
    """Return the number of runs per second that a sharing achieves."""

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
