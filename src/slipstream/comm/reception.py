"""Rank 0's side of the rendezvous: listen, refuse processes outside the job, and answer the ranks.

One thread handles all connections. A stranger is a process that has not proved that it has the job
key. The thread never blocks on a stranger's connection, so a stranger that sends nothing, or one
byte per hour, delays nobody.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import selectors
import socket
import time
from types import TracebackType

from slipstream.comm.auth import Claim
from slipstream.comm.door.doorkeeper import Doorkeeper
from slipstream.comm.door.visitor import STRANGER_SECONDS, Script, Visitor, listening_socket
from slipstream.comm.rendezvous import (
    ADDRESS_LIMIT_BYTES,
    TEXT_LIMIT_BYTES,
    Answer,
    Meeting,
    pack,
)
from slipstream.errors import AuthError, ConfigError, PeerTimeoutError, SlipstreamError, reason_of

# Chosen by hand, not measured.
_MAX_STRANGERS = 64  # unproved connections at a time; a new one replaces the oldest
_PORT_SECONDS = 2.0  # time in which a busy port may become free
_PORT_PAUSE_SECONDS = 0.05
_LOGGED_REFUSALS = 8  # number of refusals that are logged one by one

_log = logging.getLogger(__name__)


def receive(meeting: Meeting, address: bytes) -> list[bytes]:
    """Exchange engine addresses with all ranks; only rank 0 calls this function.

    Blocks until all ranks have come.

    Args:
        meeting: Address, key and time limit of the meeting.
        address: Address of this rank's engine.

    Returns:
        The addresses of all engines, in the order of the ranks.

    Raises:
        PeerTimeoutError: some ranks did not come; the message names them, on all ranks that came.
        ConfigError: the port is in use.
    """
    with _Reception(meeting) as reception:
        missing = reception.wait()
        if missing:
            reception.send_all(Answer.MISSING, missing.encode()[:TEXT_LIMIT_BYTES])
            raise PeerTimeoutError(missing)
        addresses = [address, *reception.addresses()]
        reception.send_all(Answer.ADDRESSES, pack(addresses))
        return addresses


class _Visitor(Visitor):
    """A connection to rank 0, from a rank or a stranger."""

    rank: int | None = None
    address = b""

    def answer(self, kind: Answer, body: bytes) -> None:
        """Send an answer to a rank; blocks for at most a few seconds."""
        self.send(bytes([kind]) + body)


class _Reception:
    """The listening socket and the connections to it."""

    def __init__(self, meeting: Meeting) -> None:
        self._meeting = meeting
        self._deadline = time.monotonic() + meeting.seconds
        self._visitors: list[_Visitor] = []
        self._ranks: dict[int, _Visitor] = {}
        self._refused_ranks: dict[int, str] = {}
        self._num_refusals = 0
        self._selector = selectors.DefaultSelector()
        self._door = Doorkeeper(_listen(meeting), self._selector, self._log_refusal)

    def __enter__(self) -> _Reception:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._num_refusals > _LOGGED_REFUSALS:
            _log.warning("refused %d more connections", self._num_refusals - _LOGGED_REFUSALS)
        for visitor in self._visitors:
            visitor.connection.close()
        self._door.close()
        self._selector.close()

    def addresses(self) -> list[bytes]:
        """Return the addresses of all ranks but rank 0."""
        return [self._ranks[rank].address for rank in range(1, self._meeting.claim.world_size)]

    def send_all(self, kind: Answer, body: bytes) -> None:
        """Send an answer to all ranks that have come."""
        for visitor in self._ranks.values():
            try:
                visitor.answer(kind, body)
            except OSError as error:
                # The engines will notice that the rank is gone, and report it.
                _log.warning("rank %s left the rendezvous: %s", visitor.rank, error)

    def wait(self) -> str:
        """Wait until all ranks have come; return "", or a message about the missing ranks."""
        num_others = self._meeting.claim.world_size - 1
        while len(self._ranks) < num_others:
            now = time.monotonic()
            if now >= self._deadline:
                return self._missing()
            until = min([self._deadline, *(visitor.deadline for visitor in self._visitors)])
            has_news = False
            for key, _ in self._selector.select(self._door.patience(max(0.0, until - now))):
                if key.data is None:
                    has_news = True
                else:
                    self._advance(key.data)
            for connection, name in self._door.arrivals(has_news):
                self._admit(connection, name)
            self._refuse_late()
        return ""

    def _refuse_late(self) -> None:
        now = time.monotonic()
        for visitor in [visitor for visitor in self._visitors if visitor.deadline <= now]:
            self._refuse(visitor, f"it was silent for {STRANGER_SECONDS:g} s")

    def _missing(self) -> str:
        size = self._meeting.claim.world_size
        missing = [rank for rank in range(1, size) if rank not in self._ranks]
        named = ", ".join(map(str, missing))
        reasons = "".join(
            f"; rank {rank} was refused: {self._refused_ranks[rank]}"
            for rank in missing
            if rank in self._refused_ranks
        )
        return (
            f"{'rank' if len(missing) == 1 else 'ranks'} {named} of {size} did not come to rank 0"
            f" at {self._meeting.place} within {self._meeting.seconds:g} s; look at the output of"
            f" these processes, or raise SLIPSTREAM_CONNECT_TIMEOUT{reasons}{self._unknown_host()}"
        )

    def _unknown_host(self) -> str:
        """Return a hint if rank 0 cannot resolve MASTER_ADDR, its own host's name; else ""."""
        try:
            socket.getaddrinfo(self._meeting.host, self._meeting.port, type=socket.SOCK_STREAM)
        except OSError as error:
            host = self._meeting.host
            reason = reason_of(error)
            return f"; MASTER_ADDR is {host!r}, which this host does not know either: {reason}"
        return ""

    def _admit(self, connection: socket.socket, name: str) -> None:
        strangers = [visitor for visitor in self._visitors if visitor.rank is None]
        if len(strangers) >= _MAX_STRANGERS:
            self._refuse(strangers[0], "it had not proved the job key when more connections came")
        visitor = _Visitor(connection, name)
        visitor.begin(self._script(visitor))
        self._visitors.append(visitor)
        self._selector.register(connection, selectors.EVENT_READ, visitor)

    def _advance(self, visitor: _Visitor) -> None:
        if visitor not in self._visitors:  # refused earlier in this round
            return
        try:
            visitor.advance()
        except (OSError, SlipstreamError) as error:
            self._refuse(visitor, str(error))

    def _script(self, visitor: _Visitor) -> Script:
        claim = yield from visitor.admit(self._meeting.key)
        self._door.proved()
        address = yield from visitor.message(ADDRESS_LIMIT_BYTES)
        if refusal := self._judge(claim):
            visitor.answer(Answer.REFUSED, refusal.encode())
            self._refused_ranks[claim.rank] = refusal
            raise ConfigError(f"as rank {claim.rank}: {refusal}")
        visitor.rank, visitor.address, visitor.deadline = claim.rank, address, float("inf")
        self._ranks[claim.rank] = visitor
        visitor.answer(Answer.NOTED, b"")
        yield 1  # nothing more arrives, except the end of the connection
        raise AuthError("it sent more than its address")

    def _judge(self, claim: Claim) -> str:
        """Return why rank 0 refuses a process that has the job key; "" for an accepted process."""
        expected = self._meeting.claim
        if claim.world_size != expected.world_size:
            return (
                f"its world has {claim.world_size} ranks, that of rank 0 has {expected.world_size};"
                " give all ranks the same WORLD_SIZE"
            )
        if claim.epoch != expected.epoch:
            return (
                f"it is in epoch {claim.epoch}, but rank 0 is in epoch {expected.epoch}, because"
                " the two have not called init() equally often; start all ranks again"
            )
        if not 1 <= claim.rank < expected.world_size or claim.rank in self._ranks:
            first = self._ranks[claim.rank].name if claim.rank in self._ranks else "rank 0"
            return f"rank {claim.rank} is there already ({first}); give each process its own RANK"
        return ""

    def _refuse(self, visitor: _Visitor, why: str) -> None:
        self._selector.unregister(visitor.connection)
        self._visitors.remove(visitor)
        visitor.connection.close()
        if visitor.rank is not None:
            del self._ranks[visitor.rank]
            _log.warning("rank %d left the rendezvous: %s", visitor.rank, why)
            return
        self._log_refusal(visitor.name, why)

    def _log_refusal(self, name: str, why: str) -> None:
        self._num_refusals += 1
        if self._num_refusals <= _LOGGED_REFUSALS:
            _log.warning("refused a connection from %s: %s", name, why)


def _listen(meeting: Meeting) -> socket.socket:
    """Listen on rank 0's address if it is a loopback address, else on all addresses of the host."""
    deadline = time.monotonic() + _PORT_SECONDS
    while True:
        try:
            return _bind(meeting)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            if time.monotonic() < deadline:  # an outgoing connection may briefly use the port
                time.sleep(_PORT_PAUSE_SECONDS)
                continue
            raise ConfigError(
                f"port {meeting.port} of rank 0's host is in use; set SLIPSTREAM_PORT to a free one"
                " on every rank, or MASTER_PORT to the number before a free port"
            ) from error


def _bind(meeting: Meeting) -> socket.socket:
    host = meeting.host if _is_loopback(meeting.host) else ""
    return listening_socket(host, meeting.port, backlog=4096)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
