"""A search for the settings with which a training step takes the least time.

Every trial is a few real steps. The search goes along one setting at a time, up, else down, as long
as steps become shorter by more than they differ anyway; then it rests, each time longer, until a
step takes another time than it did. Where the steps hardly wait for communication there is nothing
to gain, and nothing is tried.

Pure arithmetic: ranks that are told the same numbers choose the same.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

WORTH = 0.02  # of a step: who waits less for communication has nothing to gain
GAIN = 0.03  # of a step: what a trial must bring at least
NOISE = 1.5  # times the difference between two equal windows: likewise
STEADY, STEADYING = 0.1, 4  # windows that differ by less than this are awaited, so many at most
CHANGE = 1.25  # a step that takes so many times as long, or as short, is another one
FIRST_REST, LONGEST_REST = 32, 1024  # windows


class Measured(NamedTuple):
    """Some steps, in seconds: how long one took, and for how long it waited for communication."""

    seconds: float
    waited: float


class Knob:
    """One setting, and what may be tried.

    Args:
        name: in words, with the unit.
        values: in order.
        value: to begin with; it is added to the others where it is none of them.
    """

    def __init__(self, name: str, values: Sequence[int], value: int) -> None:
        self.name = name
        self.values = sorted({*values, value})
        self._index = self.values.index(value)

    @property
    def value(self) -> int:
        """What is in use."""
        return self.values[self._index]

    def set(self, value: int) -> None:
        """Use the nearest value that there is."""
        self._index = min(range(len(self.values)), key=lambda i: abs(self.values[i] - value))

    def can_move(self, by: int) -> bool:
        """Return whether there is a value so many further."""
        return 0 <= self._index + by < len(self.values)

    def move(self, by: int) -> None:
        """Use the value so many further."""
        self._index += by


class Tuner:
    """Turns knobs.

    Args:
        knobs: those with most effect first.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self._knobs = knobs
        self.news: list[str] = []
        self.is_settled = False
        self._search = self._live()
        next(self._search)

    def take(self, measured: Measured) -> None:
        """Take what a window of steps with the present values came to; may change them."""
        self._search.send(measured)

    def _live(self) -> Generator[None, Measured]:
        rest = FIRST_REST
        while True:
            self.is_settled = False
            last = yield
            if last.waited > WORTH * last.seconds:
                last = yield from self._look_around(last)
            self.is_settled = True
            changed = yield from self._rest(rest, last)
            rest = FIRST_REST if changed else min(LONGEST_REST, 2 * rest)

    def _rest(self, windows: int, usual: Measured) -> Generator[None, Measured, bool]:
        """Wait for so many windows, or until two in a row are not as usual and return which."""
        strange = 0
        for _ in range(windows):
            now = yield
            is_usual = usual.seconds / CHANGE < now.seconds < usual.seconds * CHANGE
            strange = 0 if is_usual else strange + 1
            if strange == 2:
                self.news.append(f"a step takes {now.seconds:.4g} s, no longer {usual.seconds:.4g}")
                return True
        return False

    def _look_around(self, first: Measured) -> Generator[None, Measured, Measured]:
        noise, best = 1.0, first
        for _ in range(STEADYING):
            last, first = first, (yield)
            best = min(last, first)
            noise = max(last, first).seconds / best.seconds - 1
            if noise < STEADY:
                break
        for knob in self._knobs:
            best = yield from self._turn(knob, best, max(GAIN, NOISE * noise))
        return best

    def _turn(self, knob: Knob, best: Measured, gain: float) -> Generator[None, Measured, Measured]:
        for direction in (1, -1):
            first = knob.value
            while knob.can_move(direction):
                former = knob.value
                knob.move(direction)
                now = yield
                if now.seconds > best.seconds * (1 - gain):
                    knob.move(-direction)
                    break
                self.news.append(
                    f"{knob.name} {former:,} becomes {knob.value:,}: a step takes"
                    f" {now.seconds:.4g} s, not {best.seconds:.4g}"
                )
                best = now
            if knob.value != first:
                break
        return best
