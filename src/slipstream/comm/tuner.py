"""A search for the values of settings with which a training step takes the least time.

Every trial of a value lasts a few real training steps. The search changes one setting at a time,
first upwards, then downwards, as long as training steps become shorter by more than the noise of
their durations. Then the search rests. A rest ends early if the duration of a step changes; if not,
the next rest lasts twice as long, up to a limit. If steps hardly wait for communication, there is
nothing to gain, and the search tries nothing.

The search depends only on the step times that it gets, so ranks that get the same step times choose
the same values.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

# A window is a few steps whose median time is measured (tuning.py). GAIN and NOISE balance false
# changes against missed gains. They were chosen in simulated searches in which a knob gains nothing
# (1,000 searches) or 5 % with each of two moves (500 searches):
# - If step times spread by 1 %, a GAIN of 0.01, 0.03 and 0.06 makes a false change in 19, 0 and 0 %
#   of the searches, and finds the complete gain in 100, 98 and 0 %.
# - If step times spread by 3 %, a NOISE of 1, 1.5 and 3 makes a false change in 21, 18 and 13 %,
#   and finds the gain in 59, 51 and 32 %.
# The other constants were chosen by hand, not measured.
WORTH = 0.02  # smallest share of a step spent waiting for communication that is worth a search
GAIN = 0.03  # smallest gain of a successful trial, as a share of the step time
NOISE = 1.5  # smallest gain of a successful trial, over the difference between two equal windows
STEADY = 0.1  # relative difference between two windows below which the step time is steady
STEADYING = 4  # largest number of windows to wait for a steady step time
CHANGE = 1.25  # ratio of step times, up or down, above which the search begins again
# Number of windows between two searches; it doubles each time, until the step time changes.
FIRST_REST, LONGEST_REST = 32, 1024


class Measured(NamedTuple):
    """Median duration of a few steps, and their median wait for communication, both in seconds."""

    seconds: float
    waited: float


class Knob:
    """A setting, with the values that a search may try.

    Args:
        name: Name of the setting in words, with the unit.
        values: Values that may be tried.
        value: Value at the start; it is added to `values` if it is missing there.
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
        """Use the one of `values` that is nearest to `value`."""
        self._index = min(range(len(self.values)), key=lambda i: abs(self.values[i] - value))

    def can_move(self, by: int) -> bool:
        """Return whether move() with this argument stays within the list of values."""
        return 0 <= self._index + by < len(self.values)

    def move(self, by: int) -> None:
        """Go `by` positions up in the sorted list of values, or down if `by` is negative."""
        self._index += by


class Tuner:
    """A search for the knob values with which a training step takes the least time.

    Args:
        knobs: Knobs, sorted by their expected effect on the step time, the largest first.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self._knobs = knobs
        self.news: list[str] = []
        self.is_settled = False
        self._search = self._live()
        next(self._search)

    def take(self, measured: Measured) -> None:
        """Receive the times of steps with the current values, and choose the next values to try."""
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
        """Let the search rest for a number of windows, or until the step time changes.

        A window is a few steps that are measured together.

        Returns:
            Whether the step time changed: in two windows in a row, it differed from the step time
            of `usual` by at least the factor CHANGE.
        """
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
