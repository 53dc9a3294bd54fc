"""BodyMemory of requests: counted before there is memory for them, and laid out for tensors."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from slipstream.serve.protocol.http import RequestConnection
from slipstream.serve.protocol.messages import JSON_LENGTH
from slipstream.serve.refusals import Reason, RequestRefusedError

_ALIGNMENT = 64  # bytes of a cache line


@dataclass(slots=True)
class BodyReservation:
    """A body's bytes, of which others are not to have too many.

    Args:
        bodies: that count them.
        num_bytes: so far.
    """

    bodies: BodyMemory
    num_bytes: int = 0

    def add(self, more: int) -> None:
        """Counts bytes before they are there; raises RequestRefusedError if they are too many."""
        self.bodies.check(self.num_bytes + more, more)
        self.num_bytes += more
        self.bodies.num_bytes += more


class BodyMemory:
    """Reads bodies.

    Args:
        each: bytes that one may have.
        together: bytes that all may have that are held at a time.
    """

    def __init__(self, each: int, together: int) -> None:
        self._each, self._together = each, together
        self.num_bytes = 0

    @contextmanager
    def held(self) -> Generator[BodyReservation]:
        """Counts the bytes of a body as long as it is held."""
        held = BodyReservation(self)
        try:
            yield held
        finally:
            self.num_bytes -= held.num_bytes

    def check(self, size: int, more: int) -> None:
        """Raises RequestRefusedError where a body gets too large, or all do.

        Args:
            size: of the body, in bytes.
            more: bytes of it that are new.
        """
        if size > self._each:
            raise RequestRefusedError(
                Reason.TOO_LARGE, f"the body has {size} bytes; {self._each} may be"
            )
        if self.num_bytes + more > self._together:
            raise RequestRefusedError(
                Reason.BUSY, f"{self.num_bytes} bytes of requests are held already", 1.0
            )


async def read(
    fields: Mapping[str, str],
    link: RequestConnection,
    receive: Receive,
    held: BodyReservation,
    seconds: float,
) -> memoryview:
    """Returns the body of a request; binary tensors in it begin on a cache line.

    Args:
        fields: of its header.
        link: to its connection.
        receive: as ASGI has it, for a body that does not say how long it is.
        held: that counts its bytes.
        seconds: that it may take.

    Raises RequestRefusedError if it is too large or slow, and where the client hangs up.
    """
    said = fields.get("content-length", "")
    try:
        if "transfer-encoding" in fields or not (said.isascii() and said.isdecimal()):
            return await asyncio.wait_for(_pieces(receive, held), seconds)
        held.add(int(said))
        memory = aligned(int(said), fields.get(JSON_LENGTH, ""))
        await link.fill(memory, seconds)
    except ClientDisconnect as error:
        raise RequestRefusedError(Reason.GONE, "the client hung up") from error
    except (TimeoutError, asyncio.TimeoutError) as error:
        raise RequestRefusedError(
            Reason.LATE, f"the body was not there after {seconds:g} s; it may take no longer"
        ) from error
    return memory


async def _pieces(receive: Receive, held: BodyReservation) -> memoryview:
    pieces: list[bytes] = []
    async for piece in Request({"type": "http"}, receive).stream():
        held.add(len(piece))
        pieces.append(piece)
    return memoryview(b"".join(pieces))


def aligned(size: int, json_length: str) -> memoryview:
    """Return memory for a body whose first tensor, behind the JSON, begins at a cache line.

    Args:
        size: of the body in bytes.
        json_length: as the header says it; anything but a number is 0.
    """
    is_number = json_length.isascii() and json_length.isdecimal() and len(json_length) < 20
    before = int(json_length) if is_number else 0
    block = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -(block.ctypes.data + before) % _ALIGNMENT
    return block[begin : begin + size].data
