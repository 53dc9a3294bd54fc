"""Authenticated connections of this process to others of its job, for messages of bytes.

A message is sent as its length, its digest and its bytes (auth.py makes the digests).
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

from slipstream.comm.auth import CHALLENGE_BYTES, DIGEST_BYTES, Claim, Connector, Seal
from slipstream.errors import AuthError

HEAD = struct.Struct(f"!I{DIGEST_BYTES}s")

_LOOK_SECONDS = 0.1  # time between two calls of `look`
_MOST_READ_BYTES = 1 << 16


def sealed(message: bytes, seal: Seal) -> bytes:
    """Return a message as it is sent, with its length and digest in front."""
    return HEAD.pack(len(message), seal.digest(message)) + message


class Channel:
    """An authenticated connection to a process that listens.

    Args:
        connection: Connection, which this object closes.
        connector: Connector that has exchanged proofs with the other process.
    """

    def __init__(self, connection: socket.socket, connector: Connector) -> None:
        self._connection = connection
        self._outgoing, self._incoming = connector.seals()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        self._connection.close()

    def send(self, message: bytes) -> None:
        """Send a message."""
        self._connection.sendall(sealed(message, self._outgoing))

    def receive(
        self, deadline: float, limit: int, look: Callable[[], None] = lambda: None
    ) -> bytes:
        """Return the next message.

        Args:
            deadline: Time in seconds of `time.monotonic` at which the message must be complete.
            limit: Largest size of the message in bytes.
            look: Function that is called ten times a second meanwhile; an error of it ends the
                wait (default: does nothing).

        Raises:
            TimeoutError: no complete message has come by `deadline`.
            AuthError: the message is too long or was changed on its way.
            OSError: the connection is lost.
        """
        size, digest = HEAD.unpack(_read(self._connection, HEAD.size, deadline, look))
        if not 1 <= size <= limit:
            raise AuthError(f"it announces {size} bytes; allowed: 1 to {limit}")
        message = _read(self._connection, size, deadline, look)
        if not self._incoming.matches(message, digest):
            raise AuthError("a message of it was changed on the way")
        return message


def open_channel(host: str, port: int, *, key: bytes, claim: Claim, deadline: float) -> Channel:
    """Connect to a process that listens, and exchange proofs of the job key with it.

    Args:
        host: Name or address of the process's host.
        port: Port on which the process listens.
        key: Key of the job.
        claim: Rank, world size and epoch of this process.
        deadline: Time in seconds of `time.monotonic` at which the proofs must be exchanged.

    Raises:
        OSError: nobody listens there, or the process did not answer in time.
        AuthError: the process has another job key.
        ConfigError: the process is not Slipstream, or has another version of the protocol.
    """
    connection = _dial(host, port, deadline)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if connection.getsockname() == connection.getpeername():
            raise ConnectionRefusedError("the kernel connected the socket to itself")
        connector = Connector(key, claim)
        connection.sendall(connector.hello)
        connection.sendall(connector.prove(_read(connection, CHALLENGE_BYTES, deadline)))
        return Channel(connection, connector)
    except BaseException:
        connection.close()
        raise


def _dial(host: str, port: int, deadline: float) -> socket.socket:
    """Connect to the first of a host's addresses that answers."""
    failure: OSError | None = None
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for index, (family, kind, protocol, _, address) in enumerate(found):
        connection = socket.socket(family, kind, protocol)
        try:
            # If nobody listens yet, the kernel may give this socket the port and connect it to
            # itself. With SO_REUSEADDR the other process can still listen on the port, even while
            # the closed socket is in TIME_WAIT.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # An address that does not answer leaves its share of the time to the others.
            share = (deadline - time.monotonic()) / (len(found) - index)
            connection.settimeout(max(0.001, share))
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure or OSError(f"{host} has no address")


def _read(
    connection: socket.socket,
    size: int,
    deadline: float,
    look: Callable[[], None] | None = None,
) -> bytes:
    data = bytearray()
    while len(data) < size:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("it does not answer")
        if look:
            look()
        connection.settimeout(min(remaining, _LOOK_SECONDS) if look else remaining)
        try:
            piece = connection.recv(min(size - len(data), _MOST_READ_BYTES))
        except TimeoutError:
            continue
        if not piece:
            raise ConnectionResetError("it closed the connection")
        data += piece
    return bytes(data)
