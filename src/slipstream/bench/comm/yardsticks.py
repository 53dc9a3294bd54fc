"""Reference measurements for collectives: a TCP ping-pong, and loops that copy and add."""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

# Size of the engine's largest segment. A piece stays in the cache while it is copied, added and
# copied again.
PIECE_BYTES = 256 << 10

CONNECT_SECONDS = 60.0  # time limit in seconds for the connection of the ping-pong


class PingPong:
    """A connection between two ranks, over which a message is sent and returned.

    The constructor communicates, so all ranks must call it at the same time.

    Args:
        ranks: The two connected ranks.
        address: IPv4 address of the first rank.
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
        """Return a function that sends a message and waits for its return.

        On ranks that are not connected, the function does nothing.

        Args:
            size: Size of the message in bytes.
        """
        connection = self._socket
        if connection is None:
            return lambda: None
        message, buffer = bytes(size), memoryview(bytearray(size))

        def first() -> None:
            connection.sendall(message)
            _fill(connection, buffer)

        def second() -> None:
            _fill(connection, buffer)
            connection.sendall(message)

        return first if self._is_first else second

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()


def copy_and_add(size: int, ranks: int) -> Callable[[], None]:
    """Return a loop that does the memory work of a rank in a shared-memory allreduce.

    The loop handles size * (n-1) / n bytes, piece by piece. It copies each piece into a buffer,
    adds the buffer to a sum, and copies the sum to the result.

    Args:
        size: Size in bytes of the buffer that an allreduce would reduce.
        ranks: Number n of ranks.
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
        for buffer, part, total_part, result_part in steps:
            buffer.copy_(part)
            total_part.add_(buffer)
            result_part.copy_(total_part)

    return loop


def host_copies(size: int, device: torch.device) -> Callable[[], None]:
    """Return a function that copies from a device to the host and back, both at once.

    Args:
        size: Size in bytes of each of the two copies.
        device: Device with streams.
    """
    module = torch.get_device_module(device)
    elements = max(1, size // 4)
    outgoing, incoming = (torch.ones(elements, pin_memory=True) for _ in range(2))
    source, result = (torch.ones(elements, device=device) for _ in range(2))
    copies = ((module.Stream(), outgoing, source), (module.Stream(), result, incoming))
    module.synchronize()

    def run() -> None:
        for stream, target, origin in copies:
            with module.stream(stream):
                target.copy_(origin, non_blocking=True)
        module.synchronize()

    return run


def _fill(connection: socket.socket, buffer: memoryview) -> None:
    received = 0
    while received < len(buffer):
        count = connection.recv_into(buffer[received:])
        if count == 0:
            raise ConnectionError("the other rank closed the connection of the ping-pong")
        received += count
