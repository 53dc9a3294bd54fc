"""A connection that another process has opened to this one, read without blocking."""

from __future__ import annotations

import socket
import time
from collections.abc import Generator

from slipstream.comm.auth import HELLO_BYTES, PROOF_BYTES, Acceptor, Claim, Seal
from slipstream.comm.channel import HEAD, sealed
from slipstream.errors import AuthError

# Chosen by hand, not measured.
STRANGER_SECONDS = 10.0  # time limit for a connection to prove the job key
_SEND_SECONDS = 5.0  # time limit for sending a message

Script = Generator[int, bytes, None]


def listening_socket(host: str, port: int, backlog: int) -> socket.socket:
    """Return a socket that listens on one address of this host, or on all.

    Args:
        host: Address, or "" for all addresses of IPv4 and IPv6.
        port: Port; 0 for any free one.
        backlog: Number of connections that the kernel keeps until they are accepted.

    Raises:
        OSError: the port is in use.
    """
    server = _server(host, port, backlog)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted ones inherit it
    return server


def _server(host: str, port: int, backlog: int) -> socket.socket:
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=backlog)
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog
        )
    return socket.create_server(("", port), backlog=backlog)


class Visitor:
    """The connection of a process that may still be a stranger, without the job key.

    A script, which is a generator, carries out the protocol with the visitor. It yields the number
    of bytes that it needs next, and gets them when they have come.

    Args:
        connection: Connection to the visitor, which this object closes.
        name: Address of the connection's other end, for messages.
    """

    def __init__(self, connection: socket.socket, name: str) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.name = name
        self.deadline = time.monotonic() + STRANGER_SECONDS
        self.seal: Seal | None = None
        self._incoming: Seal
        self._script: Script
        self._wanted = 0
        self._data = bytearray()

    def begin(self, script: Script) -> None:
        """Start the generator that carries out the protocol with the visitor.

        Args:
            script: Generator that yields the number of bytes that it needs next. advance() passes
                these bytes to the generator when they have come.
        """
        self._script = script
        self._wanted = next(script)

    def advance(self) -> None:
        """Read the bytes that have come, and continue the generator if it has all that it needs.

        Raises:
            OSError: the connection is lost.
            SlipstreamError: the visitor is no rank of this job.
        """
        try:
            piece = self.connection.recv(self._wanted - len(self._data))
        except BlockingIOError:
            return
        if not piece:
            raise ConnectionResetError("it closed the connection")
        self._data += piece
        if len(self._data) == self._wanted:
            data, self._data = bytes(self._data), bytearray()
            self._wanted = self._script.send(data)

    def admit(self, key: bytes) -> Generator[int, bytes, Claim]:
        """Exchange proofs of the job key with the visitor, as a part of a script.

        Returns:
            What the visitor claims to be.

        Raises:
            AuthError: the visitor does not have the job key.
            ConfigError: the visitor is not Slipstream, or has another version of the protocol.
        """
        acceptor = Acceptor(key, (yield HELLO_BYTES))
        self.connection.sendall(acceptor.challenge)
        claim = acceptor.verify((yield PROOF_BYTES))
        self.seal, self._incoming = acceptor.seals()
        return claim

    def message(self, limit: int) -> Generator[int, bytes, bytes]:
        """Return the next message of a visitor that was admitted, as a part of a script.

        Args:
            limit: Largest size of the message in bytes.

        Raises:
            AuthError: the message is too long or was changed on its way.
        """
        size, digest = HEAD.unpack((yield HEAD.size))
        if not 1 <= size <= limit:
            raise AuthError(f"it announces {size} bytes; allowed: 1 to {limit}")
        message = yield size
        if not self._incoming.matches(message, digest):
            raise AuthError("its message was changed on the way")
        return message

    def send(self, message: bytes) -> None:
        """Send a message to a visitor that was admitted; blocks for at most a few seconds."""
        assert self.seal is not None, "only visitors that were admitted get messages"
        self.connection.settimeout(_SEND_SECONDS)
        self.connection.sendall(sealed(message, self.seal))
        self.connection.setblocking(False)
