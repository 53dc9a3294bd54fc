"""Times of several things that do the same, measured by turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

WARM_UPS = 2
LEAST_ROUNDS = 5
LEAST_CALLS = WARM_UPS + LEAST_ROUNDS  # of what is timed, however slow it is
MOST_ROUNDS = 200
TURN = 0.1  # seconds
CALLS = 10  # in a turn
FINAL = 1.3  # of the fastest median: whose best round is slower is measured no more

Run = Callable[[], object]
Tell = Callable[[float], None]


@dataclass(frozen=True)
class Timing:
    """What a call of one contender took in its rounds, in seconds.

    Args:
        median: of all rounds.
        low: a quarter of the rounds took this or less.
        high: a quarter took this or more.
        rounds: how many there were.
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
        """Some calls one after the other, no more than begin in `least` seconds: the first one of
        several is not counted, as it finds in the processor's caches what others left."""
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
    """Time every run by turns, so that whatever disturbs the machine disturbs all alike.

    A turn is of calls as a user makes them, one after the other. The order turns round from one
    round to the next. All have their turn in the first rounds; then those go on whose best round is
    within `final` of the fastest median.

    Args:
        runs: by name; each is called with nothing, first without being timed.
        seconds: all in all, warm-up included; the first rounds take place in any case.
        most_rounds: ends it earlier, default 200.
        final: a ratio, 1 or more, default 1.3.
        turn: seconds in which its calls begin, ten at most, default 0.1; 0: one call.
        tell: called between rounds with the share of the work that is done, 0 to 1.

    Returns: medians and quartiles by name, in the order of `runs`. Blocks.
    """
    if not runs:
        return {}
    begin = time.monotonic()
    contenders = [_Contender(name, run) for name, run in runs.items()]
    for contender in contenders:
        for _ in range(WARM_UPS):
            contender.run()
    left = contenders
    turn = min(turn, seconds / (LEAST_ROUNDS * len(contenders)))
    for number in range(max(most_rounds, LEAST_ROUNDS)):
        for contender in left if number % 2 == 0 else left[::-1]:
            contender.turn(turn)
        spent = (time.monotonic() - begin) / max(seconds, 1e-9)
        tell(min(max(spent, (number + 1) / most_rounds), 1.0))
        if number + 1 >= LEAST_ROUNDS:
            if spent >= 1:
                break
            left = _finalists(left, final)
    return {contender.name: _timing(contender.seconds) for contender in contenders}


def _finalists(contenders: list[_Contender], final: float) -> list[_Contender]:
    fastest = min(contender.median for contender in contenders)
    return [contender for contender in contenders if min(contender.seconds) <= final * fastest]


def _timing(seconds: list[float]) -> Timing:
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(median, low, high, len(seconds))
