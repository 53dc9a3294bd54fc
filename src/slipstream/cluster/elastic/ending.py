"""The end of all processes of an elastic job, with the time limits that it has."""

import signal
import time
from collections.abc import Callable

from slipstream.cluster.elastic.hosts import HostPool
from slipstream.cluster.elastic.slots import Slot
from slipstream.cluster.elastic.verdict import NEWS_SECONDS, awaited_members
from slipstream.cluster.launch.launcher import MARGIN_SECONDS
from slipstream.cluster.launch.messages import Kill, Signal


class JobEnding:
    """The end of a job: by a signal of the user, or because the job has finished or failed.

    Args:
        pool: Hosts of the job.
        grace_seconds: Time in seconds between the order to end and SIGKILL.
        note: Function that shows a remark.

    Attributes:
        signal: Number of the signal of the user, or None.
    """

    def __init__(self, pool: HostPool, grace_seconds: float, note: Callable[[str], None]) -> None:
        self.signal: int | None = None
        self._pool = pool
        self._grace_seconds = grace_seconds
        self._note = note
        self._kill_at: float | None = None
        self._give_up_at: float | None = None
        self._finished_at = float("-inf")

    @property
    def signal_name(self) -> str:
        """Name of the signal of the user, or ""."""
        return "" if self.signal is None else signal.Signals(self.signal).name

    @property
    def deadlines(self) -> list[float]:
        """Times at which `meet_deadlines` or `awaited_members` must be called."""
        news_at = self._finished_at + NEWS_SECONDS
        due = [moment for moment in (self._kill_at, self._give_up_at) if moment is not None]
        return [*due, news_at] if time.monotonic() < news_at else due

    def note_success(self) -> None:
        """Take note that the first process has ended with 0, so that the training has ended."""
        self._finished_at = time.monotonic()

    def awaited_members(self) -> list[Slot]:
        """Return the slots with processes that take part in the end of the training."""
        return awaited_members(self._pool.slots, time.monotonic() - self._finished_at)

    def by_order(self) -> None:
        """Order all agents to end their processes, and themselves."""
        self._give_up_at = time.monotonic() + self._grace_seconds + MARGIN_SECONDS
        self._pool.end_all()

    def by_signal(self, number: int, why: str) -> None:
        """Pass the user's signal on to all processes, which have their grace to end."""
        self.signal = number
        self._kill_at = time.monotonic() + self._grace_seconds
        self._pool.order(Signal(number=number))
        self._note(f"{why}; after {self._grace_seconds:g} s, or after another one, they are killed")

    def by_second_signal(self, name: str) -> None:
        """Kill all processes as soon as possible."""
        self._kill_at = time.monotonic()
        self._note(f"{name} came again: the processes are killed")

    def meet_deadlines(self) -> None:
        """Do what is due: end the agents without processes, kill processes, give up agents."""
        now = time.monotonic()
        if self.signal is not None:
            self._pool.end_idle(also_listed=True)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._give_up_at = now + MARGIN_SECONDS
            self._pool.order(Kill())
        if self._give_up_at is not None and now >= self._give_up_at:
            self._give_up_at = None
            self._pool.abandon(self._note)
