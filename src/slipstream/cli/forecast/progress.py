"""Progress of a search and its best plan, on a terminal or as log lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from slipstream.cli.output import stderr_console

if TYPE_CHECKING:
    from rich.progress import Progress

    from slipstream.forecast import Plan

# Seconds between two log lines if there is no terminal; a shorter search writes no line.
EVERY_SECONDS = 5.0


class SearchDisplay(Protocol):
    """The interface of an object that shows the progress of a search."""

    def tell(self, step: str, done: int, total: int) -> None:
        """Show the search's current step and its progress.

        `done` of `total` parts of the search are finished; both are 0 if the total is unknown.
        """
        ...

    def better(self, plan: Plan) -> None:
        """Show the best plan so far."""
        ...


class LogLines:
    """Display that writes a log line every few seconds.

    Args:
        write: Function that receives each line.
        clock: Function that returns the time in seconds (default time.monotonic).
    """

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._begin = self._last = clock()
        self._best = ""

    def tell(self, step: str, done: int, total: int) -> None:
        """Log the search's current step, unless a line was written recently."""
        now = self._clock()
        if now - self._last < EVERY_SECONDS:
            return
        self._last = now
        tried = f"{done} of {total} tried, now {step}" if total else step
        self._write(f"{now - self._begin:.0f} s: {tried}{self._best}")

    def better(self, plan: Plan) -> None:
        """Mention this plan, the best so far, in all log lines that follow."""
        self._best = f"; best so far: {brief(plan)}"


class SearchBar:
    """Progress bar that disappears when the search ends.

    Args:
        bar: Progress bar that has been started.
    """

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None)
        self._step = self._best = ""

    def tell(self, step: str, done: int, total: int) -> None:
        """Show the search's current step."""
        self._step = step
        self._bar.update(
            self._task, description=step + self._best, completed=done, total=total or None
        )

    def better(self, plan: Plan) -> None:
        """Show the best plan so far below the search's current step."""
        self._best = f"\nbest so far: {brief(plan)}"
        self._bar.update(self._task, description=self._step + self._best)


@contextmanager
def searching() -> Generator[SearchDisplay]:
    """Yield a display of the search on the standard error stream."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = stderr_console()
    if not console.is_terminal:
        yield LogLines(lambda line: console.print(line, markup=False, soft_wrap=True))
        return
    columns = (
        SpinnerColumn(),
        BarColumn(24),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield SearchBar(bar)


def brief(plan: Plan) -> str:
    """Return a short description of a plan: hosts, time per step, and cost."""
    from slipstream.forecast.report.terminal import dollars, duration
    from slipstream.forecast.search.machines import several

    value, *rest = dollars(plan)
    cost = " ".join([value, *rest[1:]])
    step = duration(plan.seconds_per_step)[0]
    return f"{several(plan.machine, plan.hosts)}, {step} a step" + (f", {cost}" if cost else "")
