"""Connections from the gateway to one replica; they stay open between requests."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import httptools

from slipstream.errors import PeerError, SlipstreamError

Fields: TypeAlias = "Sequence[tuple[bytes, bytes]]"
Buffer: TypeAlias = "bytes | memoryview"

# Header fields that belong to one connection (RFC 9110, section 7.6.1), and those that the gateway
# writes anew.
HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding",
        b"upgrade", b"expect", b"content-length",
    }
)  # fmt: skip
_CONNECT_SECONDS = 2.0  # a host that is alive accepts within a round trip; chosen by hand


class ReplicaLostError(PeerError):
    """Try another replica: the connection ended before the whole answer had arrived."""


class ReplicaSilentError(ReplicaLostError):
    """Try another replica: this one does not say a word, as a host that is switched off."""


class AnswerLateError(SlipstreamError):
    """Allow more time: the deadline passed before the whole answer had arrived."""


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """The address of a replica, and what proves that it is the right one.

    Args:
        host: Name or address of the host.
        port: TCP port of REST.
        token: Token that the replica demands; it comes from the gateway and never leaves it
            otherwise.
        certificate: Certificate in PEM format that the replica must present; "" if the connection
            is not encrypted, as on this host.
        grpc_port: TCP port of gRPC; 0 (the default) if the replica has none.
    """

    host: str
    port: int
    token: str = field(repr=False)
    certificate: str = ""
    grpc_port: int = 0

    def __str__(self) -> str:
        """Return the address as host:port."""
        return f"{self.host}:{self.port}"


@dataclass(slots=True)
class ReplicaAnswer:
    """A whole answer.

    Args:
        status: HTTP status.
        fields: Header fields without those that belong to a connection.
        pieces: Body, in the pieces in which it arrived.
        replica: Name of the replica that answered; "" (the default) for the gateway itself.
    """

    status: int
    fields: Fields
    pieces: Sequence[Buffer] = ()
    replica: str = ""


class ReplicaConnection(asyncio.Protocol):
    """A connection to a replica, which carries one request at a time.

    Args:
        pool: Pool to which the connection belongs.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[ReplicaAnswer] | None = None
        self._fields: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._has_body = True

    @property
    def is_open(self) -> bool:
        """True if another request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(
        self, head: bytes, body: Sequence[Buffer], deadline: float, *, has_body: bool = True
    ) -> ReplicaAnswer:
        """Send a request and return the answer.

        Args:
            head: Request line and header fields.
            body: Pieces of the request's body.
            deadline: Time of the event loop at which the answer is needed.
            has_body: Whether the answer may have a body (default True); False for HEAD.

        Raises:
            ReplicaLostError: the connection ended early.
            AnswerLateError: the deadline passed.
        """
        assert self._transport is not None
        assert self._answer is None
        loop = asyncio.get_running_loop()
        self._has_body = has_body
        self._answer = answer = loop.create_future()
        timer = loop.call_at(deadline, self._end, AnswerLateError("the deadline passed"))
        self._transport.writelines([head, *body])
        try:
            return await answer
        finally:
            timer.cancel()
            if answer.cancelled():  # the client hung up, so the replica need not go on
                self.abort()

    def abort(self) -> None:
        """End the connection at once; the request that it carries gets a ReplicaLostError."""
        if self._transport is not None:
            self._transport.abort()

    # ---- calls of the event loop ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle the new connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._pool.opened(self)

    def data_received(self, data: bytes) -> None:
        """Handle bytes of an answer."""
        self._pool.heard = time.monotonic()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(ReplicaLostError(f"the answer of the replica is not HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        self._pool.closed(self)
        self._end(ReplicaLostError(f"the connection to the replica ended: {exc or 'closed'}"))

    # ---- calls of the parser ----

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header field unless it belongs to the connection."""
        name = name.lower()
        if name not in HOP_BY_HOP:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Finish an answer that has no body although its header may state a length."""
        if not self._has_body:
            self.on_message_complete()
            self.abort()

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Hand over the answer, and make ready for the next one."""
        status = self._parser.get_status_code()
        if self._answer is None or status < 200:  # an interim answer, such as 100 Continue
            return
        answer = ReplicaAnswer(status, self._fields, self._pieces)
        keeps_open = self._parser.should_keep_alive()
        self._fields, self._pieces = [], []
        if not self._answer.done():
            self._answer.set_result(answer)
        self._answer = None
        assert self._transport is not None
        # The replica may answer before it has read a body that it refuses.
        if not keeps_open or self._transport.get_write_buffer_size():
            self._transport.close()

    def _end(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)
        self.abort()


class ConnectionPool:
    """The connections to one replica.

    Args:
        address: Address of the replica.
    """

    def __init__(self, address: ReplicaAddress) -> None:
        self.address = address
        self.heard = time.monotonic()  # time at which the last byte arrived
        self._idle: list[ReplicaConnection] = []
        self._open: set[ReplicaConnection] = set()
        self._tls = _client_context(address.certificate)

    async def acquire(self, deadline: float) -> ReplicaConnection:
        """Return a connection that is free, or a new one.

        Args:
            deadline: Time of the event loop at which the connection is needed.

        Raises:
            ReplicaLostError: the replica accepts no connections.
            ReplicaSilentError: it does not answer at all.
            AnswerLateError: the deadline passed.
        """
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        loop = asyncio.get_running_loop()
        seconds = min(_CONNECT_SECONDS, deadline - loop.time())
        try:
            _, connection = await asyncio.wait_for(
                loop.create_connection(
                    lambda: ReplicaConnection(self),
                    self.address.host,
                    self.address.port,
                    ssl=self._tls,
                ),
                seconds,
            )
        except asyncio.TimeoutError as error:  # a subclass of OSError from Python 3.11 on
            if seconds < _CONNECT_SECONDS:  # which tells nothing about the replica
                raise AnswerLateError("the deadline passed") from error
            raise ReplicaSilentError(f"{self.address} does not answer") from error
        except OSError as error:
            raise ReplicaLostError(f"{self.address} accepts no connections: {error}") from error
        return connection

    def release(self, connection: ReplicaConnection) -> None:
        """Keep a connection for the next request, if it is still open."""
        if connection.is_open:
            self._idle.append(connection)

    def close(self) -> None:
        """End all connections; requests under way get a ReplicaLostError."""
        for connection in tuple(self._open):
            connection.abort()
        self._idle.clear()

    def opened(self, connection: ReplicaConnection) -> None:
        """Take note of a new connection."""
        self._open.add(connection)

    def closed(self, connection: ReplicaConnection) -> None:
        """Forget a connection that has ended."""
        self._open.discard(connection)


def _client_context(certificate: str) -> ssl.SSLContext | None:
    if not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate is that of the gateway's replicas
    context.load_verify_locations(cadata=certificate)
    return context
