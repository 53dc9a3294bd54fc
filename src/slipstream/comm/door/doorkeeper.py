"""Acceptance of connections at a listening socket, which a flood of strangers hardly disturbs.

As long as few connections come, each is accepted at once. If many come that prove nothing, the
socket is looked at every 50 ms only, so that many strangers wake the thread once. Connections whose
first bytes are not those of Slipstream are closed then before anything is computed or kept for
them.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable

from slipstream.comm.auth import MAGIC

# Chosen by hand, not measured.
_COUNT_SECONDS = 0.25
_MANY = 16  # unproved connections in this time that are a flood
_LOOK_SECONDS = 0.05  # time between two looks during a flood
_ACCEPTS = 16  # connections that are accepted at once
_ACCEPTS_OF_LOOK = 256  # the same during a flood
_SILENT_OF_LOOK = 8  # silent connections that are looked at again
_MOST_SILENT = 64  # connections that have sent nothing; a new one replaces the oldest

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
        self._silent: list[Arriving] = []
        server.setblocking(False)
        selector.register(server, selectors.EVENT_READ)

    def close(self) -> None:
        """Close the socket, and the connections that have sent nothing."""
        self.server.close()
        for connection, _ in self._silent:
            connection.close()
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
            return self._accepted(_ACCEPTS, now) if has_news else []
        if now < self._look_at:
            return []
        self._look_at = now + _LOOK_SECONDS
        # Looking at all that are silent would cost more than the others do.
        in_turn, self._silent = self._silent[:_SILENT_OF_LOOK], self._silent[_SILENT_OF_LOOK:]
        arrived = self._sorted([*in_turn, *self._accepted(_ACCEPTS_OF_LOOK, now)])
        if self._were_few or now - self._counted_from >= _COUNT_SECONDS:
            self._look_at = None
            self._selector.register(self.server, selectors.EVENT_READ)
            arrived += self._silent
            self._silent = []
        return arrived

    def _accepted(self, most: int, now: float) -> list[Arriving]:
        accepted: list[Arriving] = []
        while len(accepted) < most:
            try:
                connection, peer = self.server.accept()
            except OSError:  # there is none, or the other end closed the connection already
                break
            accepted.append((connection, f"{peer[0]} port {peer[1]}"))
            self._count(now)
        return accepted

    def _count(self, now: float) -> None:
        if now - self._counted_from >= _COUNT_SECONDS:
            self._were_few = self._unproved <= _MANY
            self._counted_from, self._unproved = now, 0
        self._unproved += 1
        if self._unproved <= _MANY:
            return
        self._were_few = False
        if self._look_at is None:
            self._look_at = now + _LOOK_SECONDS
            self._selector.unregister(self.server)

    def _sorted(self, connections: list[Arriving]) -> list[Arriving]:
        """Return connections that begin as Slipstream does, and keep those that have sent little.

        The others are closed.
        """
        arrived: list[Arriving] = []
        for connection, name in connections:
            try:
                first = connection.recv(len(MAGIC), socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._silent.append((connection, name))
                continue
            except OSError:
                first = b""
            if first == MAGIC:
                arrived.append((connection, name))
            elif first and MAGIC.startswith(first):
                self._silent.append((connection, name))
            else:
                connection.close()
                self._refuse(name, "it does not speak Slipstream's protocol")
        while len(self._silent) > _MOST_SILENT:
            connection, name = self._silent.pop(0)
            connection.close()
            self._refuse(name, "it had sent nothing when more connections came")
        return arrived
