"""Times of several functions that do the same work, measured in alternation."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# Numbers of calls and rounds, duration of a turn in seconds, and most calls of a turn. Chosen by
# hand, not measured.
WARM_UPS, LEAST_ROUNDS, MOST_ROUNDS = 2, 5, 200
TURN, CALLS = 0.1, 10
LEAST_CALLS = WARM_UPS + LEAST_ROUNDS  # of every function, however slow it is
# A function is dropped if its best round is slower than the fastest median by this factor. Chosen
# by hand, not measured.
FINAL = 1.3

Run = Callable[[], object]
Tell = Callable[[float], None]


@dataclass(frozen=True)
class Timing:
    """The time of one call of a function over its rounds, in seconds.

    Args:
        median: Median of all rounds.
        low: Lower quartile of all rounds.
        high: Upper quartile of all rounds.
        rounds: Number of rounds.
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
        """Call the function repeatedly; calls begin within `least` seconds, and one at least.

        The first of several calls does not count, because it finds the data of other functions in
        the processor's caches.
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
    """Time functions in alternation, so that a disturbance of the machine affects all of them.

    In every round each function has a turn of several calls; the order is reversed from round to
    round. After the first five rounds, the functions go on whose best round is at most `final`
    times the fastest median.

    Args:
        runs: Functions without arguments, by name; they are called without timing first.
        seconds: Duration of the measurement, warm-up included; five rounds take place in any case.
        most_rounds: Greatest number of rounds (default 200).
        final: Ratio of times, 1 or more, above which a function is dropped (default 1.3).
        turn: Seconds in which the calls of a turn begin, ten calls at most (default 0.1); 0 for
            one call.
        tell: Function called between rounds with the share of the work that is done, 0 to 1.

    Returns: medians and quartiles by name, in the order of `runs`. Blocks.
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
