"""Yardsticks of collectives: a message and back over TCP, and memory alone."""

# PyTorch's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

# As large as the engine's largest segment; a piece stays in the cache between its three passes.
PIECE_BYTES = 256 << 10

CONNECT_SECONDS = 60.0


class PingPong:
    """A connection between two ranks, over which a message goes and comes back.

    All ranks make it, together.

    Args:
        ranks: Numbers of the two ranks.
        address: IPv4 address of the first.
    """

    def __init__(self, ranks: tuple[int, ...], address: str) -> None:
        rank = dist.get_rank()
        self._is_first = rank == ranks[0]
        self._socket: socket.socket | None = None
        port: list[Any] = [None]
        listener = socket.create_server((address, 0)) if self._is_first else None
        if listener is not None:
            port = [listener.getsockname()[1]]
        dist.broadcast_object_list(port, ranks[0])
        if listener is not None:
            with listener:
                listener.settimeout(CONNECT_SECONDS)
                self._socket, _ = listener.accept()
        elif rank == ranks[1]:
            self._socket = socket.create_connection((address, port[0]), CONNECT_SECONDS)
        if self._socket is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, size: int) -> Callable[[], None]:
        """Return a function that sends a message there and back; ranks in between do nothing."""
        connection = self._socket
        if connection is None:
            return lambda: None
        message, room = bytes(size), memoryview(bytearray(size))

        def first() -> None:
            connection.sendall(message)
            _fill(connection, room)

        def second() -> None:
            _fill(connection, room)
            connection.sendall(message)

        return first if self._is_first else second

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()


def copy_and_add(size: int, ranks: int) -> Callable[[], None]:
    """Return a loop that does the memory work of a rank in a shared-memory allreduce.

    The loop copies size (n-1)/n bytes piece by piece into a buffer, adds from there and copies out.

    Args:
        size: bytes of the buffer that would be reduced.
        ranks: n.
    """
    piece = PIECE_BYTES // 4
    elements = max(1, size // 4 * (ranks - 1) // ranks)
    source, total, result = torch.ones(elements), torch.ones(elements), torch.ones(elements)
    between = torch.empty(min(piece, elements))
    steps = [
        (between[: len(part)], part, total_part, result_part)
        for part, total_part, result_part in zip(
            source.split(piece), total.split(piece), result.split(piece), strict=True
        )
    ]

    def loop() -> None:
        for place, part, total_part, result_part in steps:
            place.copy_(part)
            total_part.add_(place)
            result_part.copy_(total_part)

    return loop


def _fill(connection: socket.socket, room: memoryview) -> None:
    received = 0
    while received < len(room):
        count = connection.recv_into(room[received:])
        if count == 0:
            raise ConnectionError("the other end of the ping-pong has gone")
        received += count
