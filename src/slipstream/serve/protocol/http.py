"""uvicorn's HTTP protocol, extended so that the application chooses the memory of a body.

ASGI delivers a body in pieces that have been copied three times. Tensors are large, so the
application provides the memory once it has admitted the request, and the kernel writes the body
into that memory.
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
# Buffer for headers and all other data that is not received into the memory of a body; its contents
# are parsed before the next read.
_SCRATCH = memoryview(bytearray(1 << 16))


class RequestConnection:
    """The connection of a request, as the application sees it.

    Args:
        protocol: Connection that received the request.
        cycle: uvicorn's object for the request.
    """

    __slots__ = ("_cycle", "_protocol")

    def __init__(self, protocol: HttpConnection, cycle: RequestResponseCycle) -> None:
        self._protocol, self._cycle = protocol, cycle

    @property
    def begun(self) -> bytearray:
        """Bytes of the body that arrived together with the header."""
        return self._cycle.body

    async def fill(self, memory: memoryview, seconds: float) -> None:
        """Fill memory with the body of the request.

        Args:
            memory: Memory whose size is the body's length according to the header.
            seconds: Longest time in seconds that the body may take to arrive.

        Raises ClientDisconnect if the client hangs up, and TimeoutError if the body takes longer
        than `seconds`.
        """
        await self._protocol.fill(self._cycle, memory, seconds)

    async def answer(self, fields: Iterable[tuple[bytes, bytes]], pieces: Sequence[Buffer]) -> None:
        """Send an answer with status 200, in one write and without a copy.

        Args:
            fields: Header fields without the content length.
            pieces: Pieces of the body.
        """
        await self._protocol.answer(self._cycle, fields, pieces)

    def close_after(self) -> None:
        """Close the connection after the current answer, which says so (`Connection: close`)."""
        self._cycle.keep_alive = False

    def when_gone(self, act: Callable[[], object] | None) -> None:
        """Call `act` if the client hangs up later; None cancels an earlier `act`."""
        self._protocol.when_gone(self._cycle, act)


class HttpConnection(HttpToolsProtocol):
    """A connection of uvicorn; each request has a `RequestConnection` as an ASGI extension."""

    _memory: memoryview | None = None  # memory of the body that is being received
    _have = 0  # number of bytes received in that memory
    _filled: asyncio.Future[None] | None = None
    _gone: Callable[[], object] | None = None

    def buffer(self, sizehint: int) -> memoryview:  # asyncio chose this name
        """Return the memory for the next bytes from the socket."""
        return _SCRATCH if self._memory is None else self._memory[self._have :]

    def written(self, nbytes: int) -> None:
        """Handle bytes that the event loop has written to the memory from `buffer`."""
        if self._memory is None:
            # The parser copies the data, so the buffer can be used again.
            self.data_received(cast("bytes", _SCRATCH[:nbytes]))
            return
        self._have += nbytes
        if self._have == len(self._memory):
            self._end_body()

    def on_headers_complete(self) -> None:
        """Handle a complete header; stop reading until the application provides memory."""
        super().on_headers_complete()
        scope = cast("dict[str, Any]", self.scope)
        scope["extensions"] = {LINK: RequestConnection(self, self.cycle)}
        if any(name == _LENGTH and len(value) > 4 for name, value in self.headers):
            self.flow.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        super().connection_lost(exc)
        self._end_fill(ClientDisconnect())
        if self._gone is not None:
            self._gone()

    async def fill(self, cycle: RequestResponseCycle, memory: memoryview, seconds: float) -> None:
        """Fill memory with the body of a request; see `RequestConnection.fill`.

        The parser reads the header and the bytes of the body that arrive with the header. All other
        bytes are written to `memory` without the parser.
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
            cycle.keep_alive = False  # the next bytes are the rest of the body, not a request
            raise
        finally:
            timer.cancel()

    async def answer(
        self,
        cycle: RequestResponseCycle,
        fields: Iterable[tuple[bytes, bytes]],
        pieces: Sequence[Buffer],
    ) -> None:
        """Send an answer as uvicorn does, but in one write; see `RequestConnection.answer`."""
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
        """Call `act` if the client hangs up; see `RequestConnection.when_gone`."""
        if cycle.disconnected and act is not None:
            act()
        else:
            self._gone = act

    def _end_body(self) -> None:
        self._memory = None
        # A new parser is needed, because the old one still waits for the body.
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
    """The protocol object that is passed to the event loop.

    uvicorn's own class derives from asyncio.Protocol, to which an event loop passes copies of the
    data.

    Args:
        arguments: Arguments that uvicorn passes to its protocols.
    """

    def __init__(self, **arguments: Any) -> None:
        self._connection = connection = HttpConnection(**arguments)
        self.get_buffer = connection.buffer
        self.buffer_updated = connection.written
        self.connection_lost = connection.connection_lost
        self.eof_received = connection.eof_received
        self.pause_writing = connection.pause_writing
        self.resume_writing = connection.resume_writing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new connection."""
        self._connection.connection_made(cast("asyncio.Transport", transport))
