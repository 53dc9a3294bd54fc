"""The time limit of a search: which steps fit into the limit, and which steps are left out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

ROUND = 10  # seconds; proposed limits are multiples of this
NUM_LONGEST = 3  # number of steps that are named if the search exceeded its limit


class TimeLimit:
    """The time limit of a search, its left-out steps, and the durations of its other steps.

    Args:
        seconds: Time limit in seconds of all steps together.
        clock: Function that returns a monotonic time in seconds (default time.monotonic).
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.clock = clock
        self._begin = self._marked = clock()
        self._step = ""
        self._took: dict[str, float] = {}
        self._cut: dict[str, float] = {}
        self._enough = 0.0

    def share(self) -> float:
        """Return the share of the time that has passed (above 1 after the end of the time)."""
        return self._passed() / self.seconds

    def left(self, end: float = 1.0) -> float:
        """Return the seconds, 0 or more, until the share `end` of the time has passed."""
        return max(end * self.seconds - self._passed(), 0.0)

    def fits(self, step: str, needed: float, end: float = 1.0) -> bool:
        """Return whether a step fits into the time limit; record a step that does not fit.

        Args:
            step: Description of the step as a verb without "to", such as "time all candidates".
            needed: Expected duration of the step in seconds.
            end: Share of the time at which the step must have ended (default 1).
        """
        left = self.left(end)
        if left > 0 and needed <= left:
            return True
        self.cut(step, needed, end)
        return False

    def cut(self, step: str, needed: float, end: float = 1.0) -> None:
        """Record that a step or a part of a step was left out; see `fits` for the arguments."""
        self._cut[step] = self._cut.get(step, 0.0) + needed
        needed = self._passed() + sum(self._cut.values())
        self._enough = max(self._enough, needed / end)

    def begin(self, step: str) -> None:
        """Record that a step begins, and that the previous step has ended."""
        now = self.clock()
        self._took[self._step] = self._took.get(self._step, 0.0) + now - self._marked
        self._step, self._marked = step, now

    def notes(self) -> list[str]:
        """Return a note about left-out steps, and a note about an exceeded limit.

        The list is empty if no step was left out and the limit was not exceeded.
        """
        passed = self._passed()
        self.begin("")
        notes: list[str] = []
        if self._cut:
            steps = ", ".join(f"to {step} ({seconds:.1f} s)" for step, seconds in self._cut.items())
            notes.append(
                f"the time did not suffice {steps}; about {_proposed(self._enough)} are needed for"
                f" all (--search-time {_proposed(self._enough).replace(' ', '')})"
            )
        if passed > self.seconds:
            longest = sorted(self._took.items(), key=lambda item: -item[1])[:NUM_LONGEST]
            steps = ", ".join(f"{step or 'to begin'} {seconds:.1f} s" for step, seconds in longest)
            notes.append(
                f"the search took {passed:.1f} s, and {self.seconds:g} s were allowed, because a"
                f" step that has begun is finished; the longest steps were: {steps}"
            )
        return notes

    def _passed(self) -> float:
        return self.clock() - self._begin


def _proposed(seconds: float) -> str:
    return f"{math.ceil(seconds / ROUND) * ROUND} s"
