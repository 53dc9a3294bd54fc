"""The socket at which a member of an elastic job is found by those that survive, join or leave.

A thread serves it as long as the process belongs to the job. Whoever comes there proves the job
key, says what it wants, and waits for the answer of the thread that trains.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from slipstream.comm.door.doorkeeper import Doorkeeper
from slipstream.comm.door.visitor import Script, Visitor, listening_socket
from slipstream.comm.elastic.epoch import JobMember, decode, encode
from slipstream.errors import ConfigError, SlipstreamError, reason_of

MESSAGE_LIMIT_BYTES = 4 << 20  # an epoch with 10,000 members takes about 1.5 MB
KEEP_ALIVE_SECONDS = 1.0  # time between two signs of life to those that wait
# Silence after which each side gives the other up. A host without power answers no packet, so the
# signs of life that are sent there stay without an acknowledgement.
SILENT_SECONDS = 5 * KEEP_ALIVE_SECONDS

_MAX_STRANGERS = 64  # unproved connections at a time; a new one replaces the oldest
_LOGGED_REFUSALS = 8  # number of refusals that are logged one by one

_log = logging.getLogger(__name__)


class Arrival(Visitor):
    """A process that has come to a member, and waits for an answer.

    Args:
        connection: Connection to the process, which this object closes.
        name: Address of the connection's other end, for messages.
    """

    def __init__(self, connection: socket.socket, name: str) -> None:
        super().__init__(connection, name)
        self.wish: dict[str, Any] = {}
        self.engine_address = b""

    @property
    def member(self) -> JobMember:
        """Identity of the process."""
        return self.wish["member"]

    @property
    def kind(self) -> str:
        """What the process wants: "survive", "join" or "leave"; "" until it has said so."""
        return self.wish.get("ask", "")

    @property
    def is_stranger(self) -> bool:
        """Whether the process has not proved the job key."""
        return self.seal is None


Answer = Callable[[Arrival], dict[str, Any] | None]
"""Chooses the answer that a process gets at once; None lets it wait."""


class MemberListener:
    """A listening socket with its thread, and those that have come.

    Args:
        key: Key of the job.
        host: Address to listen on, or "" for all addresses of this host.
        port: Port to listen on; 0 for any free one.
        answer: Function that chooses an answer when a process has said what it wants. It is called
            in the listener's thread.

    Raises:
        ConfigError: the port is in use.
    """

    def __init__(self, key: bytes, host: str, port: int, answer: Answer) -> None:
        self._key = key
        self._answer = answer
        server = _listen(host, port)
        self.port: int = server.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._door = Doorkeeper(server, self._selector, self._log_refusal)
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._tasks: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        # In the order of their coming; guarded by _changed.
        self._visitors: dict[Arrival, None] = {}
        self._strangers: dict[Arrival, None] = {}  # those that have not proved the job key
        self._num_refusals = 0
        self._open = True
        _listeners.add(self)
        self._thread = threading.Thread(target=self._serve, name="slipstream-members", daemon=True)
        self._thread.start()

    def arrivals(self, kind: str) -> list[Arrival]:
        """Return the processes that wait here and want something, in the order of their coming."""
        with self._changed:
            return [each for each in self._visitors if each.kind == kind]

    def wait(self, seconds: float) -> None:
        """Block until somebody has come, left or sent an address, but at most for some seconds."""
        with self._changed:
            self._changed.wait(seconds)

    def tell(self, arrival: Arrival, values: dict[str, Any], *, last: bool = False) -> None:
        """Send a message to a process that waits here; does not block.

        Args:
            arrival: Process that waits.
            values: Message.
            last: Whether the connection is closed afterwards (default False).
        """
        self._do(lambda: self._tell(arrival, values, last=last))

    def answer_again(self) -> None:
        """Ask for the answer of each process that waits; does not block."""
        self._do(self._answer_all)

    def close(self) -> None:
        """Send what is to be sent, close all connections and end the thread; blocks shortly."""
        self._do(self._end)
        self._thread.join()

    def close_in_child(self) -> None:
        """Close the sockets of a forked child, which would outlive this process and look alive."""
        self._door.server.close()
        for visitor in self._visitors:
            visitor.connection.close()

    def _do(self, task: Callable[[], None]) -> None:
        self._tasks.append(task)
        with contextlib.suppress(OSError):  # the bell is full, or the listener is closed
            self._ring.send(b"!", socket.MSG_DONTWAIT)

    def _end(self) -> None:
        self._open = False

    def _serve(self) -> None:
        sign_of_life = time.monotonic()
        while self._open:
            has_news = False
            for key, _ in self._selector.select(self._door.patience(KEEP_ALIVE_SECONDS / 4)):
                if key.fileobj is self._door.server:
                    has_news = True
                elif key.fileobj is self._bell:
                    self._bell.recv(4096)
                else:
                    self._advance(key.data)
            for connection, name in self._door.arrivals(has_news):
                self._admit(connection, name)
            while self._tasks:
                self._tasks.popleft()()
            now = time.monotonic()
            if now - sign_of_life >= KEEP_ALIVE_SECONDS:
                sign_of_life = now
                self._keep_alive(now)
        for visitor in self._visitors:
            visitor.connection.close()
        for end in (self._door, self._bell, self._ring):
            end.close()
        self._selector.close()

    def _keep_alive(self, now: float) -> None:
        for visitor in list(self._visitors):
            if visitor.kind:
                self._tell(visitor, {"say": "wait"})
            elif visitor.deadline <= now:
                self._refuse(visitor, "it did not say in time what it wants")

    def _admit(self, connection: socket.socket, name: str) -> None:
        if len(self._strangers) >= _MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            self._refuse(oldest, "it had not proved the job key when more connections came")
        milliseconds = int(SILENT_SECONDS * 1e3)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        visitor = Arrival(connection, name)
        visitor.begin(self._script(visitor))
        with self._changed:
            self._visitors[visitor] = self._strangers[visitor] = None
        self._selector.register(connection, selectors.EVENT_READ, visitor)

    def _script(self, visitor: Arrival) -> Script:
        yield from visitor.admit(self._key)
        self._door.proved()
        self._strangers.pop(visitor)
        while True:
            values = decode((yield from visitor.message(MESSAGE_LIMIT_BYTES)))
            if "engine" in values:
                visitor.engine_address = bytes.fromhex(values["engine"])
            elif not visitor.kind and values.get("ask"):
                visitor.wish = values
                self._answer_one(visitor)
            with self._changed:
                self._changed.notify_all()

    def _advance(self, visitor: Arrival) -> None:
        if visitor not in self._visitors:  # closed earlier in this round
            return
        try:
            visitor.advance()
        except (OSError, SlipstreamError, ValueError) as error:
            self._refuse(visitor, reason_of(error))

    def _answer_all(self) -> None:
        for visitor in list(self._visitors):
            if visitor.kind:
                self._answer_one(visitor)

    def _answer_one(self, visitor: Arrival) -> None:
        answer = self._answer(visitor)
        if answer is not None:
            self._tell(visitor, answer, last=True)

    def _tell(self, visitor: Arrival, values: dict[str, Any], *, last: bool = False) -> None:
        if visitor not in self._visitors:
            return
        try:
            visitor.send(encode(values))
        except OSError as error:
            return self._drop(visitor, reason_of(error))
        if last:
            self._drop(visitor, "")

    def _refuse(self, visitor: Arrival, why: str) -> None:
        if visitor.is_stranger:
            self._log_refusal(visitor.name, why)
        self._drop(visitor, why)

    def _log_refusal(self, name: str, why: str) -> None:
        self._num_refusals += 1
        if self._num_refusals <= _LOGGED_REFUSALS:
            _log.warning("refused a connection from %s: %s", name, why)

    def _drop(self, visitor: Arrival, why: str) -> None:
        if visitor not in self._visitors:
            return
        self._selector.unregister(visitor.connection)
        visitor.connection.close()
        with self._changed:
            self._strangers.pop(visitor, None)
            del self._visitors[visitor]
            self._changed.notify_all()
        if why and visitor.kind:
            _log.debug("%s no longer waits: %s", visitor.name, why)


_listeners: weakref.WeakSet[MemberListener] = weakref.WeakSet()


def _close_in_child() -> None:
    for listener in _listeners:
        listener.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listening_socket(host, port, backlog=1024)
    except OSError as error:
        raise ConfigError(
            f"port {port} of this host cannot be used to wait for members of the job:"
            f" {reason_of(error)}; set SLIPSTREAM_MEMBER_PORT to a free port, or to 0"
        ) from error
