"""A search for the settings with which a training step takes the least time.

Every trial is a few real steps. The search changes one setting at a time, first upwards, then
downwards, as long as steps become shorter by more than the noise of their times. Then it rests,
each time longer, until the duration of a step changes. If steps hardly wait for communication,
there is nothing to gain, and nothing is tried.

The search is pure arithmetic: ranks that get the same numbers choose the same values.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

# GAIN and NOISE balance false changes and missed gains in simulated searches, in which a knob gains
# nothing (1,000 searches) or 5 % with each of two moves (500 searches). With a spread of step times
# of 1 %, a GAIN of 0.01, 0.03 and 0.06 makes a false change in 19, 0 and 0 % of the searches and
# finds the whole gain in 100, 98 and 0 %. With a spread of 3 %, a NOISE of 1, 1.5 and 3 makes one
# in 21, 18 and 13 %, and finds the gain in 59, 51 and 32 %. The others were chosen by hand, not
# measured.
WORTH = 0.02  # smallest share of a step spent waiting for communication that is worth a search
GAIN = 0.03  # smallest gain of a successful trial, as a share of the step
NOISE = 1.5  # smallest gain likewise, in units of the difference between two equal windows
STEADY = 0.1  # relative difference between two windows below which the step counts as steady
STEADYING = 4  # most windows to wait for a steady step
CHANGE = 1.25  # ratio of step durations, up or down, above which the search begins again
FIRST_REST, LONGEST_REST = 32, 1024  # windows; a rest doubles after each search without news


class Measured(NamedTuple):
    """Mean duration of some steps, and their mean wait for communication, both in seconds."""

    seconds: float
    waited: float


class Knob:
    """A setting and the values that may be tried.

    Args:
        name: Name in words, with the unit.
        values: Values to try.
        value: First value in use; it is added to the others if it is not among them.
    """

    def __init__(self, name: str, values: Sequence[int], value: int) -> None:
        self.name = name
        self.values = sorted({*values, value})
        self._index = self.values.index(value)

    @property
    def value(self) -> int:
        """Value in use."""
        return self.values[self._index]

    def set(self, value: int) -> None:
        """Use the nearest of the allowed values."""
        self._index = min(range(len(self.values)), key=lambda i: abs(self.values[i] - value))

    def can_move(self, by: int) -> bool:
        """Return whether there is a value `by` positions away in the sorted list."""
        return 0 <= self._index + by < len(self.values)

    def move(self, by: int) -> None:
        """Use the value `by` positions away in the sorted list."""
        self._index += by


class Tuner:
    """A search for the values of knobs with which steps take the least time.

    Args:
        knobs: Knobs, in the order of their expected effect, largest first.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self._knobs = knobs
        self.news: list[str] = []
        self.is_settled = False
        self._search = self._live()
        next(self._search)

    def take(self, measured: Measured) -> None:
        """Use the times of a window of steps with the current values, and maybe change values."""
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
        """Wait for some windows; return True as soon as two consecutive windows are unusual."""
        unusual = 0
        for _ in range(windows):
            now = yield
            is_usual = usual.seconds / CHANGE < now.seconds < usual.seconds * CHANGE
            unusual = 0 if is_usual else unusual + 1
            if unusual == 2:
                self.news.append(
                    f"a step now takes {now.seconds:.4g} s instead of {usual.seconds:.4g}"
                )
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
                    f" {now.seconds:.4g} s instead of {best.seconds:.4g}"
                )
                best = now
            if knob.value != first:
                break
        return best
