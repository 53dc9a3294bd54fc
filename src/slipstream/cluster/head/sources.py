"""The hosts whose daemons are connected, as the source of hosts of an elastic job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from slipstream.cluster.head.switchboard import Switchboard
from slipstream.cluster.launch.hosts import Host

LOOK_SECONDS = 0.2


class HostsThatCame:
    """The hosts of a switchboard; see `HostSource`.

    Args:
        board: Switchboard of the run.
        usable: Function that returns those of some hosts that may be used, in their order.
    """

    def __init__(
        self, board: Switchboard, usable: Callable[[Sequence[Host]], tuple[Host, ...]]
    ) -> None:
        self._board = board
        self._usable = usable
        self.hosts: tuple[Host, ...] = ()
        self.problem = ""
        self.has_answered = False
        self.due_at = time.monotonic()

    @property
    def name(self) -> str:
        """Name of the source, for messages."""
        return "the list of hosts"

    def advance(self) -> bool:
        """Look at the hosts; return whether they have changed since the last look."""
        now = time.monotonic()
        if now < self.due_at:
            return False
        self.due_at = now + LOOK_SECONDS
        hosts = self._usable(self._board.hosts)
        is_new = hosts != self.hosts or not self.has_answered
        self.hosts = hosts
        self.has_answered = True
        return is_new

    def close(self) -> None:
        """Do nothing: the switchboard stays open for the next attempt."""
