"""uvicorn's HTTP, with a body put where the application wants it.

ASGI hands a body over in pieces that were copied three times on their way. Tensors are large, so
here the application gives memory, as soon as it knows that the request may come in, and the kernel
writes to it.
"""

# uvicorn leaves some types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, cast

import httptools
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

LINK = "slipstream"  # name of the extension in an ASGI scope

Buffer: TypeAlias = "bytes | memoryview"

_OK = b"HTTP/1.1 200 OK\r\n"
_LENGTH = b"content-length"
# What is read at a time where no memory is given; what it is for is done before more is read.
_SCRATCH = memoryview(bytearray(1 << 16))


class RequestConnection:
    """A request's way to its connection.

    Args:
        protocol: of the connection.
        cycle: of the request.
    """

    __slots__ = ("_cycle", "_protocol")

    def __init__(self, protocol: HttpConnection, cycle: RequestResponseCycle) -> None:
        self._protocol, self._cycle = protocol, cycle

    async def fill(self, memory: memoryview, seconds: float) -> None:
        """Returns once the body is in memory.

        Args:
            memory: as long as the header says that the body is.
            seconds: that it may take.

        Raises ClientDisconnect if the client hangs up before, and TimeoutError.
        """
        await self._protocol.fill(self._cycle, memory, seconds)

    async def answer(self, fields: Iterable[tuple[bytes, bytes]], pieces: Sequence[Buffer]) -> None:
        """Answers with status 200, in one write and without a copy.

        Args:
            fields: of the header, without the length.
            pieces: of the body.
        """
        await self._protocol.answer(self._cycle, fields, pieces)

    def close_after(self) -> None:
        """Sees to it that the answer says `Connection: close`, and is the last one."""
        self._cycle.keep_alive = False

    def when_gone(self, act: Callable[[], object] | None) -> None:
        """Sees to it that something is done if the client hangs up meanwhile; None: no more."""
        self._protocol.when_gone(self._cycle, act)


class HttpConnection(HttpToolsProtocol):
    """A connection of uvicorn that gives each request a `RequestConnection` as an extension."""

    _memory: memoryview | None = None  # that what comes next is written to
    _have = 0  # bytes in it
    _filled: asyncio.Future[None] | None = None
    _gone: Callable[[], object] | None = None

    def buffer(self, sizehint: int) -> memoryview:  # asyncio names it so
        """Returns where what comes next is to be written."""
        return _SCRATCH if self._memory is None else self._memory[self._have :]

    def written(self, nbytes: int) -> None:
        """Takes note of bytes that came."""
        if self._memory is None:
            # The parser copies what it gives on.
            self.data_received(cast("bytes", _SCRATCH[:nbytes]))
            return
        self._have += nbytes
        if self._have == len(self._memory):
            self._end_body()

    def on_headers_complete(self) -> None:
        """As of httptools: a body that is not in hand yet waits for what the application says."""
        super().on_headers_complete()
        scope = cast("dict[str, Any]", self.scope)
        scope["extensions"] = {LINK: RequestConnection(self, self.cycle)}
        if any(name == _LENGTH and len(value) > 4 for name, value in self.headers):
            self.flow.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """As of `asyncio`."""
        super().connection_lost(exc)
        self._end_fill(ClientDisconnect())
        if self._gone is not None:
            self._gone()

    async def fill(self, cycle: RequestResponseCycle, memory: memoryview, seconds: float) -> None:
        """Fill memory with the body of a request; see `RequestConnection.fill`.

        Bytes that have not arrived belong to the message that the parser is reading.
        """
        have = len(cycle.body)
        memory[:have] = cycle.body
        cycle.body = bytearray()
        if have == len(memory):
            return
        if cycle.disconnected:
            raise ClientDisconnect
        if cycle.waiting_for_100_continue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            cycle.waiting_for_100_continue = False
        self._memory, self._have, self._filled = memory, have, self.loop.create_future()
        self.flow.resume_reading()
        timer = self.loop.call_later(seconds, self._end_fill, TimeoutError())
        try:
            await self._filled
        except TimeoutError:
            cycle.keep_alive = False  # what is still to come is not a next request
            raise
        finally:
            timer.cancel()

    async def answer(
        self,
        cycle: RequestResponseCycle,
        fields: Iterable[tuple[bytes, bytes]],
        pieces: Sequence[Buffer],
    ) -> None:
        """See `RequestConnection`. It is what uvicorn does with the messages of ASGI, at once."""
        if self.flow.write_paused:
            await self.flow.drain()
        if cycle.disconnected:
            return
        length = b"%d" % sum(memoryview(each).nbytes for each in pieces)
        closing = [] if cycle.keep_alive else [(b"connection", b"close")]
        all_fields = [*cycle.default_headers, *fields, (_LENGTH, length), *closing]
        head = b"".join(b"%b: %b\r\n" % each for each in all_fields)
        cycle.response_started = cycle.response_complete = True
        self.transport.writelines([_OK, head, b"\r\n", *pieces])
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def when_gone(self, cycle: RequestResponseCycle, act: Callable[[], object] | None) -> None:
        """See `RequestConnection`."""
        if cycle.disconnected and act is not None:
            act()
        else:
            self._gone = act

    def _end_body(self) -> None:
        self._memory = None
        # The old one still waits for the body.
        self.parser = httptools.HttpRequestParser(self)
        self.on_message_complete()
        self._end_fill(None)

    def _end_fill(self, error: Exception | None) -> None:
        if self._filled is None or self._filled.done():
            return
        if error is None:
            self._filled.set_result(None)
        else:
            self._filled.set_exception(error)


class Protocol(asyncio.BufferedProtocol):
    """What the event loop knows of a connection. uvicorn's own class has another base, by which an
    event loop tells that it is to be given copies.

    Args:
        given: what uvicorn gives to its protocols.
    """

    def __init__(self, **given: Any) -> None:
        self._connection = connection = HttpConnection(**given)
        self.get_buffer = connection.buffer
        self.buffer_updated = connection.written
        self.connection_lost = connection.connection_lost
        self.eof_received = connection.eof_received
        self.pause_writing = connection.pause_writing
        self.resume_writing = connection.resume_writing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As of `asyncio`."""
        self._connection.connection_made(cast("asyncio.Transport", transport))
