"""Acceptance of connections at a listening socket, which a flood of strangers hardly disturbs.

As long as few connections come, each is accepted at once. If many come that prove nothing, the
socket is looked at every 50 ms only, so that many strangers wake the thread once. Connections whose
first bytes are not those of Slipstream are closed then before anything is computed or kept for
them.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable

from slipstream import _core
from slipstream.comm.auth import MAGIC

# Chosen by hand, not measured.
_COUNT_SECONDS = 0.25
_MANY = 16  # unproved connections in this time that are a flood
_LOOK_SECONDS = 0.05  # time between two looks during a flood
_ACCEPTS = 16  # connections that are accepted at once
_ACCEPTS_OF_LOOK = 256  # the same during a flood
_SILENT_OF_LOOK = 8  # silent connections that are looked at again
_MOST_SILENT = 64  # connections that have sent nothing; a new one replaces the oldest

_log = logging.getLogger(__name__)

Arriving = tuple[socket.socket, str]
"""A connection, and the address of its other end for messages."""


class Doorkeeper:
    """The listening socket of a thread, which is registered with the thread's selector.

    Args:
        server: Listening socket, which this object closes.
        selector: Selector of the thread.
        refuse: Function that is told the address and the reason of each refusal.
    """

    def __init__(
        self,
        server: socket.socket,
        selector: selectors.BaseSelector,
        refuse: Callable[[str, str], None],
    ) -> None:
        self.server = server
        self._selector = selector
        self._refuse = refuse
        self._counted_from = 0.0
        self._unproved = 0
        self._were_few = True
        self._look_at: float | None = None  # during a flood
        self._is_starved = False
        self._silent: list[int] = []  # descriptors
        server.setblocking(False)
        selector.register(server, selectors.EVENT_READ)

    def close(self) -> None:
        """Close the socket, and the connections that have sent nothing."""
        self.server.close()
        for descriptor in self._silent:
            os.close(descriptor)
        self._silent.clear()

    @property
    def is_flooded(self) -> bool:
        """Whether connections are looked at only from time to time, because of many strangers."""
        return self._look_at is not None

    def patience(self, seconds: float) -> float:
        """Return the time that the thread may wait for events: `seconds`, or less in a flood."""
        if self._look_at is None:
            return seconds
        return max(0.0, min(seconds, self._look_at - time.monotonic()))

    def proved(self) -> None:
        """Count a connection that has proved the job key as no stranger's."""
        self._unproved = max(0, self._unproved - 1)

    def arrivals(self, has_news: bool) -> list[Arriving]:
        """Accept connections; return those that the caller should talk to.

        Args:
            has_news: Whether the selector has announced connections. During a flood it does not, so
                call this function after every wait.
        """
        now = time.monotonic()
        if self._look_at is None:
            return self._arriving(self._accepted(_ACCEPTS, now).greeted) if has_news else []
        if now < self._look_at:
            return []
        self._look_at = now + _LOOK_SECONDS
        arrived = self._look(now)
        if self._were_few or now - self._counted_from >= _COUNT_SECONDS:
            self._look_at = None
            self._selector.register(self.server, selectors.EVENT_READ)
            arrived += self._silent
            self._silent = []
        return self._arriving(arrived)

    def _look(self, now: float) -> list[int]:
        """Return the descriptors of those that begin as Slipstream does, and close the others.

        Those that have not sent enough are kept.
        """
        # Looking at all that are silent would cost more than the others do.
        in_turn, self._silent = self._silent[:_SILENT_OF_LOOK], self._silent[_SILENT_OF_LOOK:]
        found = self._accepted(_ACCEPTS_OF_LOOK, now, in_turn, MAGIC)
        for name in found.refused:
            self._refuse(name, "it does not speak Slipstream's protocol")
        self._silent += found.silent
        while len(self._silent) > _MOST_SILENT:
            ((connection, name),) = self._arriving([self._silent.pop(0)])
            connection.close()
            self._refuse(name, "it had sent nothing when more connections came")
        return found.greeted

    def _accepted(
        self, most: int, now: float, silent: Iterable[int] = (), greeting: bytes = b""
    ) -> _core.Arrivals:
        found = _core.sort_arrivals(self.server.fileno(), list(silent), most, greeting)
        if found.accepted:
            self._is_starved = False
            self._count(found.accepted, now)
        if found.error:
            self._starve(found.error, now)
        return found

    def _count(self, accepted: int, now: float) -> None:
        if now - self._counted_from >= _COUNT_SECONDS:
            self._were_few = self._unproved <= _MANY
            self._counted_from, self._unproved = now, 0
        self._unproved += accepted
        if self._unproved > _MANY:
            self._were_few = False
            self._look_from_now_on(now)

    def _starve(self, error: int, now: float) -> None:
        """Pause, as nothing can be accepted until this process has closed files."""
        if not self._is_starved:
            self._is_starved = True
            _log.warning(
                "this rank cannot accept connections: %s; new connections wait until this process"
                " has closed files (see ulimit -n)",
                os.strerror(error),
            )
        self._look_from_now_on(now)

    def _look_from_now_on(self, now: float) -> None:
        if self._look_at is None:
            self._look_at = now + _LOOK_SECONDS
            self._selector.unregister(self.server)

    def _arriving(self, descriptors: Iterable[int]) -> list[Arriving]:
        # Python asks the kernel for what it is not told here, by three calls for each connection.
        kind = (self.server.family, self.server.type, self.server.proto)
        made = [socket.socket(*kind, fileno=descriptor) for descriptor in descriptors]
        return [(connection, _name_of(connection)) for connection in made]


def _name_of(connection: socket.socket) -> str:
    try:
        host, port = connection.getpeername()[:2]
    except OSError:  # the other end has closed it
        return "an address that has left"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
