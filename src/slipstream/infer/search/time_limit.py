"""The time that a search may take: which steps fit into it, and which had to be left out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

ROUND = 10  # seconds that are proposed are a multiple of it
NUM_LONGEST = 3  # steps that are named where all took longer than they should


class TimeLimit:
    """A limit, the steps that it cut, and what the others took.

    Args:
        seconds: duration that all steps together may have.
        clock: function that returns seconds, which only grow.
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
        """Return the share of the time that has passed; it is above 1 when the time is over."""
        return self._passed() / self.seconds

    def left(self, end: float = 1.0) -> float:
        """Return the seconds until a share `end` of the time has passed, 0 or more."""
        return max(end * self.seconds - self._passed(), 0.0)

    def fits(self, step: str, needed: float, end: float = 1.0) -> bool:
        """Return whether a step may begin that needs so many seconds and has to be done when a
        share `end` of the time has passed. A step that may not is remembered."""
        left = self.left(end)
        if left > 0 and needed <= left:
            return True
        self.cut(step, needed, end)
        return False

    def cut(self, step: str, needed: float, end: float = 1.0) -> None:
        """Remember a step, or a part of one, that was left out; see `fits`."""
        self._cut[step] = self._cut.get(step, 0.0) + needed
        needed = self._passed() + sum(self._cut.values())
        self._enough = max(self._enough, needed / end)

    def begin(self, step: str) -> None:
        """Note that this step begins, and that the one before it has ended."""
        now = self.clock()
        self._took[self._step] = self._took.get(self._step, 0.0) + now - self._marked
        self._step, self._marked = step, now

    def notes(self) -> list[str]:
        """Return a sentence each about the steps that were cut, and about a limit that was
        exceeded; none where all steps had their time."""
        passed = self._passed()
        self.begin("")
        found: list[str] = []
        if self._cut:
            steps = ", ".join(f"to {step} ({seconds:.1f} s)" for step, seconds in self._cut.items())
            found.append(
                f"the time did not suffice {steps}; about {_proposed(self._enough)} are needed for"
                f" all (--time {_proposed(self._enough).replace(' ', '')})"
            )
        if passed > self.seconds:
            longest = sorted(self._took.items(), key=lambda item: -item[1])[:NUM_LONGEST]
            steps = ", ".join(f"{step or 'to begin'} {seconds:.1f} s" for step, seconds in longest)
            found.append(
                f"the search took {passed:.1f} s, and {self.seconds:g} s were allowed, as what has"
                f" begun is finished; longest took: {steps}"
            )
        return found

    def _passed(self) -> float:
        return self.clock() - self._begin


def _proposed(seconds: float) -> str:
    return f"{math.ceil(seconds / ROUND) * ROUND} s"
