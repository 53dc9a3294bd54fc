"""Where a search is and what it has found so far, on a terminal and without one."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from slipstream.lab.display import stderr_console

if TYPE_CHECKING:
    from slipstream.forecast import Plan

# Seconds between two lines where there is no terminal; what takes less says nothing.
EVERY_SECONDS = 5.0


class Watching(Protocol):
    """Who is told what a search does."""

    def tell(self, what: str, done: int, of: int) -> None:
        """Show what is done, how many steps were and how many there are; 0 of 0: not known."""
        ...

    def better(self, plan: Plan) -> None:
        """Show the best plan so far from now on."""
        ...


class Lines:
    """Writes a line every few seconds, for logs.

    Args:
        write: called with each line.
        clock: the time in seconds.
    """

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._begin = self._last = clock()
        self._best = ""

    def tell(self, what: str, done: int, of: int) -> None:
        """Write what is done, unless a line was written a moment ago."""
        now = self._clock()
        if now - self._last < EVERY_SECONDS:
            return
        self._last = now
        tried = f"{done} of {of} tried, now {what}" if of else what
        self._write(f"{now - self._begin:.0f} s: {tried}{self._best}")

    def better(self, plan: Plan) -> None:
        """Write the best plan so far with the lines that follow."""
        self._best = f"; best so far: {brief(plan)}"


class Bar:
    """Shows a bar that goes away when the search ends.

    Args:
        bar: started.
    """

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None)
        self._what = self._best = ""

    def tell(self, what: str, done: int, of: int) -> None:
        """Show what is done."""
        self._what = what
        self._bar.update(
            self._task, description=what + self._best, completed=done, total=of or None
        )

    def better(self, plan: Plan) -> None:
        """Show the best plan so far below what is done."""
        self._best = f"\nbest so far: {brief(plan)}"
        self._bar.update(self._task, description=self._what + self._best)


@contextmanager
def searching() -> Generator[Watching]:
    """Yield what shows a search on the standard error stream."""
    console = stderr_console()
    if not console.is_terminal:
        yield Lines(lambda line: console.print(line, markup=False, soft_wrap=True))
        return
    columns = (
        SpinnerColumn(),
        BarColumn(24),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield Bar(bar)


def brief(plan: Plan) -> str:
    """Return a plan in half a line: its hosts, the time of a step, and what it costs."""
    from slipstream.forecast.report.terminal import dollars, duration
    from slipstream.forecast.search.machines import several

    value, *rest = dollars(plan)
    cost = " ".join([value, *rest[1:]])
    step = duration(plan.seconds_per_step)[0]
    return f"{several(plan.machine, plan.hosts)}, {step} a step" + (f", {cost}" if cost else "")
