"""Connections from clients to the gateway.

A request is read whole before it is passed on, so a slow client keeps no replica waiting, and the
request can be sent again. Its body is kept in the pieces in which it arrived, without a copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

import httptools
import orjson

from slipstream.serve.gateway.upstream import Buffer, Fields, ReplicaAnswer
from slipstream.serve.protocol.bodies import BodyMemory, BodyReservation
from slipstream.serve.refusals import Reason, RequestRefusedError

_MOST_HEAD = 1 << 16  # bytes of a request line with its header fields; as uvicorn allows
_LINGER_SECONDS = 2.0  # in which a refused client can read the answer; chosen by hand
_STATUS_LINES = {
    each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in http.HTTPStatus
}


@dataclass(slots=True)
class ClientRequest:
    """A request as it arrived.

    Args:
        method: HTTP method.
        target: Path and query.
        fields: Header fields, with names in lower case.
        body: Pieces of the body.
        begin: Time of the event loop at which the header had arrived.
    """

    method: bytes
    target: bytes
    fields: Fields
    body: list[Buffer]
    begin: float

    def field(self, name: bytes) -> str:
        """Return the value of a header field, or "" if the request has no such field."""
        return next((value.decode("latin-1") for key, value in self.fields if key == name), "")

    @property
    def num_bytes(self) -> int:
        """Size of the body in bytes."""
        return sum(len(piece) for piece in self.body)


@dataclass(slots=True)
class Reception:
    """What all connections from clients share.

    Args:
        admit: Function that raises RequestRefusedError for a request whose body must not be read.
        respond: Function that returns the answer to a request; it raises no error.
        bodies: Limits and counter of the memory that bodies take.
        connections: Connections that are open.
        is_ending: Whether each connection ends after its next answer (default False).
    """

    admit: Callable[[ClientRequest], None]
    respond: Callable[[ClientRequest], Awaitable[ReplicaAnswer]]
    bodies: BodyMemory
    connections: set[ClientConnection] = field(default_factory=set["ClientConnection"])
    is_ending: bool = False

    def sweep(self, idle_seconds: float, body_seconds: float) -> None:
        """End connections that send nothing.

        Args:
            idle_seconds: Time in seconds for which a connection may have no request.
            body_seconds: Time in seconds within which a request must arrive.
        """
        now = time.monotonic()
        for connection in tuple(self.connections):
            limit = body_seconds if connection.is_receiving else idle_seconds
            if not connection.is_answering and now - connection.since > limit:
                connection.close()


class ClientConnection(asyncio.Protocol):
    """A connection from a client; its requests are answered one after the other.

    Args:
        reception: Object that all connections share.
    """

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._memory = BodyReservation(reception.bodies)
        self._transport: asyncio.Transport | None = None
        self._unread = b""  # bytes that no request has taken yet
        self._request: ClientRequest | None = None  # one that arrives
        self._left = 0  # bytes of its body that are still to arrive, if the length is known
        self._parser = httptools.HttpRequestParser(self)
        self._is_whole = False  # whether the parser has seen the end of the request
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._keeps_open, self._is_refused = True, False
        self.since = time.monotonic()  # when the last request began or ended

    @property
    def is_answering(self) -> bool:
        """True while a request is being answered."""
        return self._task is not None

    @property
    def is_receiving(self) -> bool:
        """True while a request has arrived in part."""
        return bool(self._unread or self._request)

    def close(self) -> None:
        """End the connection after the bytes that are being sent."""
        if self._transport is not None:
            self._transport.close()

    # ---- calls of the event loop ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle the new connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._reception.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection; nobody waits for the answer any more."""
        self._reception.connections.discard(self)
        self._free_memory()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Wait with further requests until the client has read its answers."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Go on, because the client has read its answers."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Handle bytes of a request."""
        assert self._transport is not None
        if self._is_refused:
            return
        if self._task is not None:
            self._unread += data
            self._transport.pause_reading()
            return
        try:
            if self._request is None:
                self._take_head(data)
            else:
                self._take_body(self._request, data)
        except httptools.HttpParserError as error:
            self._refuse(error_answer(Reason.INVALID.status, f"the request is not HTTP: {error}"))
        except RequestRefusedError as error:
            self._refuse(refusal(error))

    # ---- calls of the parser ----

    def on_url(self, url: bytes) -> None:
        """Keep a piece of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header field."""
        self._fields.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        """Keep a piece of a body whose length the header does not state."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Take note of the end of the request."""
        self._is_whole = True

    # ---- a request ----

    def _take_head(self, data: bytes) -> None:
        """Handle bytes of a header, and what follows it."""
        if not self._unread:
            self.since = time.monotonic()
        self._unread += data
        end = self._unread.find(b"\r\n\r\n") + 4
        if end < 4:
            if len(self._unread) > _MOST_HEAD:
                raise RequestRefusedError(Reason.INVALID, "the header has more than 64 KiB")
            return
        head, rest = self._unread[:end], self._unread[end:]
        self._unread, self._target, self._is_whole = b"", b"", False
        self._fields: list[tuple[bytes, bytes]] = []
        self._pieces: list[Buffer] = []
        self._parser = httptools.HttpRequestParser(self)
        with contextlib.suppress(httptools.HttpParserUpgrade):  # answered in HTTP/1.1
            self._parser.feed_data(head)
        self._keeps_open = self._parser.should_keep_alive()
        self._request = request = ClientRequest(
            method=self._parser.get_method(),
            target=self._target,
            fields=self._fields,
            body=self._pieces,
            begin=asyncio.get_running_loop().time(),
        )
        self._admit(request)
        self._take_body(request, rest)

    def _admit(self, request: ClientRequest) -> None:
        """Check a request before its body is read; reserve the memory for the body."""
        assert self._transport is not None
        is_chunked = bool(request.field(b"transfer-encoding"))
        self._left = 0 if is_chunked else int(request.field(b"content-length") or 0)
        # The parser may have begun with the next request where the last chunk ended.
        self._keeps_open = self._keeps_open and not is_chunked
        self._reception.admit(request)
        self._memory.add(self._left)
        if request.field(b"expect").lower() == "100-continue" and not self._is_whole:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _take_body(self, request: ClientRequest, data: bytes) -> None:
        """Handle bytes of a body; a body of known length needs no parser."""
        if self._left:
            piece = data if len(data) <= self._left else memoryview(data)[: self._left]
            if piece:
                request.body.append(piece)
            self._left -= len(piece)
            self._is_whole = not self._left
            data = data[len(piece) :]
        elif not self._is_whole:
            before = request.num_bytes
            self._parser.feed_data(data)
            self._memory.add(request.num_bytes - before)
            data = b""
        if self._is_whole:
            self._unread, self._request = data, None
            self._task = asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request: ClientRequest) -> None:
        assert self._transport is not None
        answer = await self._reception.respond(request)
        self._send(answer, with_body=request.method != b"HEAD")
        await self._writable.wait()
        self._task, self.since = None, time.monotonic()
        self._free_memory()
        if self._transport.is_closing():
            return
        unread, self._unread = self._unread, b""
        if not self._transport.is_reading():
            self._transport.resume_reading()
        if unread:
            self.data_received(unread)

    def _free_memory(self) -> None:
        self._reception.bodies.num_bytes -= self._memory.num_bytes
        self._memory = BodyReservation(self._reception.bodies)

    def _send(self, answer: ReplicaAnswer, *, with_body: bool = True) -> None:
        assert self._transport is not None
        closes = self._is_refused or not self._keeps_open or self._reception.is_ending
        head = [_STATUS_LINES.get(answer.status) or b"HTTP/1.1 %d Other\r\n" % answer.status]
        head += [b"%b: %b\r\n" % each for each in answer.fields]
        if answer.status not in (204, 304) and with_body:
            head.append(b"content-length: %d\r\n" % sum(map(len, answer.pieces)))
        head.append(b"connection: close\r\n\r\n" if closes else b"\r\n")
        self._transport.writelines([b"".join(head), *(answer.pieces if with_body else ())])
        if closes and not self._is_refused:
            self._transport.close()

    def _refuse(self, answer: ReplicaAnswer) -> None:
        """Answer a request that is not read to its end, and end the connection."""
        assert self._transport is not None
        self._is_refused, self._left, self._request, self._unread = True, 0, None, b""
        self._send(answer)
        # If the connection ended now, with bytes that nobody has read, the kernel would reset it,
        # and the client would not see the answer.
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._transport.close)


def refusal(error: RequestRefusedError) -> ReplicaAnswer:
    """Return the answer for a request that is refused."""
    answer = error_answer(error.reason.status, str(error))
    fields = list(answer.fields)
    if error.reason is Reason.UNAUTHENTICATED:
        fields.append((b"www-authenticate", b"Bearer"))
    if error.retry_after is not None:
        fields.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after))))
    return ReplicaAnswer(answer.status, fields, answer.pieces)


def error_answer(status: int, message: str) -> ReplicaAnswer:
    """Return an answer with an error in the protocol's form.

    Args:
        status: HTTP status.
        message: Text of the error.
    """
    return json_answer(status, {"error": message})


def json_answer(status: int, content: object) -> ReplicaAnswer:
    """Return an answer with JSON.

    Args:
        status: HTTP status.
        content: Value that is written as JSON.
    """
    fields = [(b"content-type", b"application/json")]
    return ReplicaAnswer(status, fields, [orjson.dumps(content)])
