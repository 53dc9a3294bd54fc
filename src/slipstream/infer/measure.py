"""Measure the times of several functions that do the same work. The functions run alternately."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# Number of untimed calls of each function, and least and greatest number of timed rounds. Chosen by
# hand, not measured.
WARM_UPS, LEAST_ROUNDS, MOST_ROUNDS = 2, 5, 200
# Duration of a turn in seconds, and greatest number of calls in a turn. Chosen by hand, not
# measured.
TURN, CALLS = 0.1, 10
LEAST_CALLS = WARM_UPS + LEAST_ROUNDS  # number of calls that even the slowest function gets
# A function is dropped if even its best round takes more than this many times the lowest median of
# all functions. Chosen by hand, not measured.
FINAL = 1.3

Run = Callable[[], object]
Tell = Callable[[float], None]


@dataclass(frozen=True)
class Timing:
    """The time in seconds of one call of a function, summarised over all rounds.

    Args:
        median: Median over all rounds, in seconds.
        low: Lower quartile over all rounds, in seconds.
        high: Upper quartile over all rounds, in seconds.
        rounds: Number of rounds in which the function ran.
    """

    median: float
    low: float
    high: float
    rounds: int


@dataclass
class _Contender:
    name: str
    run: Run
    seconds: list[float] = field(default_factory=list[float])

    def turn(self, least: float) -> None:
        """Call the function one to ten times, and record the median time of a call.

        The first of several calls is not counted, because during this call the processor's caches
        still hold the data of other functions.

        Args:
            least: Time after the first call's beginning from which no further call begins, in
                seconds.
        """
        calls: list[float] = []
        begin = now = time.perf_counter()
        while not calls or (now - begin < least and len(calls) < CALLS):
            before = now
            self.run()
            now = time.perf_counter()
            calls.append(now - before)
        self.seconds.append(statistics.median(calls[1:] or calls))

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def interleave(
    runs: Mapping[str, Run],
    seconds: float,
    *,
    most_rounds: int = MOST_ROUNDS,
    final: float = FINAL,
    turn: float = TURN,
    tell: Tell = lambda share: None,
) -> dict[str, Timing]:
    """Time functions alternately, so that a disturbance of the machine affects all of them.

    In every round, each function is called several times in succession (its turn). The order of the
    functions is reversed from round to round. After the fifth round and each later round, a
    function is dropped if even its best round took more than `final` times the lowest median.

    Args:
        runs: Functions without arguments, by name. Each function is called twice before it is
            timed.
        seconds: Duration of the measurement in seconds, warm-up included. There are at least five
            rounds, even if these take more than `seconds`.
        most_rounds: Largest number of rounds (default 200; fewer than five count as five).
        final: Limit for dropping a function, as a multiple of the lowest median of all functions
            that have not been dropped, 1 or more (default 1.3).
        turn: Duration in seconds after which no further call of a turn begins (default 0.1); 0
            gives one call per turn.
        tell: Function that is called after each round, with the share of the measurement that is
            done, 0 to 1.

    Returns:
        Timing of each function by name, in the order of `runs`. The result includes dropped
        functions.
    """
    if not runs:
        return {}
    begin = time.monotonic()
    contenders = [_Contender(name, run) for name, run in runs.items()]
    for contender in contenders:
        for _ in range(WARM_UPS):
            contender.run()
    finalists = contenders
    turn = min(turn, seconds / (LEAST_ROUNDS * len(contenders)))
    for number in range(max(most_rounds, LEAST_ROUNDS)):
        for contender in finalists if number % 2 == 0 else finalists[::-1]:
            contender.turn(turn)
        spent = (time.monotonic() - begin) / max(seconds, 1e-9)
        tell(min(max(spent, (number + 1) / most_rounds), 1.0))
        if number + 1 >= LEAST_ROUNDS:
            if spent >= 1:
                break
            finalists = _finalists(finalists, final)
    return {contender.name: _timing(contender.seconds) for contender in contenders}


def _finalists(contenders: list[_Contender], final: float) -> list[_Contender]:
    fastest = min(contender.median for contender in contenders)
    return [contender for contender in contenders if min(contender.seconds) <= final * fastest]


def _timing(seconds: list[float]) -> Timing:
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(median, low, high, len(seconds))
