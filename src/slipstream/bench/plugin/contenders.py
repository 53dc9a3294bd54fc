"""The compared ways to send a message: the NCCL plugin, and plain sockets."""

from __future__ import annotations

import os
import selectors
import shutil
import socket
from collections import deque
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from slipstream.bench.plugin.job import RECEIVER, SENDER
from slipstream.bench.plugin.net import HANDLE_BYTES, Net
from slipstream.comm import Group
from slipstream.errors import InternalError
from slipstream.settings.changed import changed
from slipstream.settings.variables import variables

REQUESTS_IN_FLIGHT = 8  # NCCL has up to 8 steps of a channel in flight
LEAST_PART_BYTES = 65536  # of a message that is split over sockets; NCCL's default

Bytes = npt.NDArray[np.uint8]


class PluginContender(Protocol):
    """A measured way to send a message from one rank to the other."""

    @property
    def name(self) -> str:
        """Name in tables."""
        ...

    def move(self, data: Bytes, request_bytes: int) -> None:
        """Send or receive a message in requests of at most `request_bytes`; wait for its end."""

    def close(self) -> None:
        """Close all connections."""


class Plugin:
    """The NCCL plugin with a given number of TCP connections (streams) for data.

    Args:
        group: Group of both ranks.
        library: Path of the plugin's file.
        streams: Number of TCP connections that carry the parts of a message.
        folder: Folder into which the plugin's file is copied. Each copy reads its own number of
            streams from the environment.
    """

    def __init__(self, group: Group, library: Path, streams: int, folder: Path) -> None:
        self.name = f"plugin, {streams} stream{'s' * (streams > 1)}"
        copy = folder / f"rank{group.rank}-streams{streams}.so"
        shutil.copyfile(library, copy)
        with changed(**{variables()["streams"].name: str(streams)}):
            self._net = Net(copy)
        handle, listening = self._net.listen() if group.rank == RECEIVER else (b"", 0)
        shared: Bytes = np.array(list(handle.ljust(HANDLE_BYTES, b"\0")), dtype=np.uint8)
        group.broadcast(shared, RECEIVER)
        self._sends = group.rank == SENDER
        net = self._net
        self._comm = net.connect(shared.tobytes()) if self._sends else net.accept(listening)

    def move(self, data: Bytes, request_bytes: int) -> None:
        """Send or receive a message in requests of at most `request_bytes`; wait for its end."""
        start = self._net.send if self._sends else self._net.receive
        address, offset, size = data.ctypes.data, 0, data.nbytes
        requests: deque[int] = deque()
        while offset < size or requests:
            if offset < size and len(requests) < REQUESTS_IN_FLIGHT:
                part = min(request_bytes, size - offset)
                request = start(self._comm, address + offset, part)
                if request:
                    requests.append(request)
                    offset += part
                    continue
            if requests and self._net.is_done(requests[0]):
                requests.popleft()
            else:
                os.sched_yield()  # as NCCL's thread does if nothing has progressed

    def close(self) -> None:
        """Close the comm."""
        self._net.close(self._comm, sends=self._sends)


class Sockets:
    """Plain sockets, over which each request is split evenly, as in NCCL's socket transport.

    One socket is NCCL's default; NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD choose more.

    Args:
        group: Group of both ranks.
        address: Address of the receiver.
        count: Number of sockets.
    """

    def __init__(self, group: Group, address: str, count: int) -> None:
        self.name = f"{count} plain socket{'s' * (count > 1)}"
        self._sends = group.rank == SENDER
        self._sockets = _connected(group, address, count)
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setblocking(False)

    def move(self, data: Bytes, request_bytes: int) -> None:
        """Send or receive a message in requests of at most `request_bytes`; wait for its end."""
        event = selectors.EVENT_WRITE if self._sends else selectors.EVENT_READ
        with selectors.DefaultSelector() as selector:
            for each, parts in zip(self._sockets, self._parts(data, request_bytes), strict=True):
                if parts:
                    selector.register(each, event, parts)
            while selector.get_map():
                for key, _ in selector.select():
                    self._go_on(cast(socket.socket, key.fileobj), key.data)
                    if not key.data:
                        selector.unregister(key.fileobj)

    def close(self) -> None:
        """Close the sockets."""
        for each in self._sockets:
            each.close()

    def _parts(self, data: Bytes, request_bytes: int) -> list[deque[memoryview]]:
        """Split all requests over the sockets; return each socket's parts, in order of sending."""
        shares: list[deque[memoryview]] = [deque() for _ in self._sockets]
        for offset in range(0, data.nbytes, request_bytes):
            request = data[offset : offset + request_bytes].data
            length = max(LEAST_PART_BYTES, -(-len(request) // len(shares)))
            for index, start in enumerate(range(0, len(request), length)):
                shares[index].append(request[start : start + length])
        return shares

    def _go_on(self, end: socket.socket, parts: deque[memoryview]) -> None:
        """Send or receive as much of the first part as possible; remove the bytes from `parts`."""
        moved = end.send(parts[0]) if self._sends else end.recv_into(parts[0])
        if not moved:
            raise InternalError("the other rank has closed a plain socket")
        rest = parts.popleft()[moved:]
        if rest:
            parts.appendleft(rest)


def _connected(group: Group, address: str, count: int) -> list[socket.socket]:
    """Connect the two ranks, and return the sockets; both ranks return them in the same order."""
    port = np.zeros(1, dtype=np.int64)
    if group.rank == RECEIVER:
        with socket.create_server((address, 0)) as server:
            port[0] = server.getsockname()[1]
            group.broadcast(port, RECEIVER)
            return [server.accept()[0] for _ in range(count)]
    group.broadcast(port, RECEIVER)
    return [socket.create_connection((address, int(port[0]))) for _ in range(count)]
