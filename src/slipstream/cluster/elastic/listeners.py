"""The interfaces through which the launcher of an elastic job tells what happens."""

from typing import Protocol

from slipstream.cluster.launch.launcher import Display, FlightListener


class ElasticDisplay(Display, Protocol):
    """The interface of a display of an elastic job; slots have the place of ranks."""

    def named(self, rank: int, host: str, first_rank: int | None) -> None:
        """Take note that a process starts in slot `rank`, with a first rank or to join the job."""

    def running(self, count: int) -> None:
        """Receive the number of processes that run, whenever it has changed."""


class ElasticFlightListener(FlightListener, Protocol):
    """The interface of a listener that keeps what explains the faults of an elastic job."""

    def ended(self, slot: int, status: int | None, epoch: int, *, by_launcher: bool) -> None:
        """Receive the end of a slot's process, and its last epoch; see `ElasticFlightLog`."""

    def lost_all(self) -> None:
        """Take note that no member is left, so the job starts again."""
