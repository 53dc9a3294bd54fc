"""The bodies of requests: bytes are counted before memory is allocated, and tensors are aligned."""

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
    """The memory that one request body takes.

    Args:
        bodies: Limits and counter of the memory of all bodies.
        num_bytes: Number of bytes that are reserved so far (default 0).
    """

    bodies: BodyMemory
    num_bytes: int = 0

    def add(self, more: int) -> None:
        """Reserve `more` bytes of memory; raise RequestRefusedError if this exceeds a limit."""
        self.bodies.check(self.num_bytes + more, more)
        self.num_bytes += more
        self.bodies.num_bytes += more


class BodyMemory:
    """The memory that all request bodies take.

    Args:
        each: Largest size in bytes that one body may have.
        together: Largest size in bytes that all bodies in memory may have together.
    """

    def __init__(self, each: int, together: int) -> None:
        self._each, self._together = each, together
        self.num_bytes = 0

    @contextmanager
    def reserve(self) -> Generator[BodyReservation]:
        """Count the bytes of a body for as long as the context is open."""
        reservation = BodyReservation(self)
        try:
            yield reservation
        finally:
            self.num_bytes -= reservation.num_bytes

    def check(self, size: int, more: int) -> None:
        """Raise RequestRefusedError if a body, or the sum of all bodies, becomes too large.

        Args:
            size: Size of the body in bytes, including the new bytes.
            more: Number of new bytes.
        """
        if size > self._each:
            raise RequestRefusedError(
                Reason.TOO_LARGE, f"the body has {size} bytes; at most {self._each} are allowed"
            )
        if self.num_bytes + more > self._together:
            raise RequestRefusedError(
                Reason.BUSY,
                f"requests already take {self.num_bytes} bytes of memory; send it again later",
                1.0,
            )


async def read(
    fields: Mapping[str, str],
    link: RequestConnection,
    receive: Receive,
    reservation: BodyReservation,
    seconds: float,
) -> memoryview:
    """Return the body of a request; its first binary tensor begins at a cache line.

    Args:
        fields: Header fields of the request.
        link: Connection of the request.
        receive: ASGI's function that receives the body if its length is not in the header.
        reservation: Reservation of the memory that the body takes.
        seconds: Longest time in seconds that the body may take to arrive.

    Raises RequestRefusedError if the body is too large or too slow, or if the client hangs up.
    """
    length = fields.get("content-length", "")
    try:
        if "transfer-encoding" in fields or not (length.isascii() and length.isdecimal()):
            return await asyncio.wait_for(_pieces(receive, reservation), seconds)
        reservation.add(int(length))
        memory = aligned(int(length), fields.get(JSON_LENGTH, ""))
        await link.fill(memory, seconds)
    except ClientDisconnect as error:
        raise RequestRefusedError(Reason.GONE, "the client hung up") from error
    except (TimeoutError, asyncio.TimeoutError) as error:
        raise RequestRefusedError(
            Reason.LATE, f"the body had not arrived after {seconds:g} s, the longest time allowed"
        ) from error
    return memory


async def _pieces(receive: Receive, reservation: BodyReservation) -> memoryview:
    pieces: list[bytes] = []
    async for piece in Request({"type": "http"}, receive).stream():
        reservation.add(len(piece))
        pieces.append(piece)
    return memoryview(b"".join(pieces))


def aligned(size: int, json_length: str) -> memoryview:
    """Return memory for a body; the first tensor, behind the JSON, begins at a cache line.

    Args:
        size: Size of the body in bytes.
        json_length: Length of the JSON, as text from the header; a text that is not a number means
            0.
    """
    is_number = json_length.isascii() and json_length.isdecimal() and len(json_length) < 20
    before = int(json_length) if is_number else 0
    block = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -(block.ctypes.data + before) % _ALIGNMENT
    return block[begin : begin + size].data
