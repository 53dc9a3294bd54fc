"""Rendezvous of all ranks at rank 0, where they exchange the addresses of their engines.

Rank 0 listens. Each other rank connects to rank 0, proves that it has the job key (auth.py), sends
its address and waits. Rank 0 answers at once that it has noted the address. When all ranks have
come, rank 0 sends all addresses to all ranks. If ranks are missing at the time limit, rank 0 sends
the numbers of the missing ranks to the ranks that came. After its last answer, rank 0 closes the
connections. A message is sent as its length, its digest and its bytes. The first byte of an answer
states the kind of the answer (see `Answer`).
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from enum import IntEnum

from slipstream.comm.auth import (
    CHALLENGE_BYTES,
    DIGEST_BYTES,
    Claim,
    Connector,
    Seal,
)
from slipstream.errors import (
    AuthError,
    ConfigError,
    PeerError,
    PeerTimeoutError,
    SlipstreamError,
    reason_of,
)

ADDRESS_LIMIT_BYTES = 4096
TEXT_LIMIT_BYTES = 4096
HEAD = struct.Struct(f"!I{DIGEST_BYTES}s")

# Chosen by hand, not measured.
_PATIENCE_SECONDS = 10.0  # time by which rank 0 may start later than the ranks that wait for it
_ATTEMPT_SECONDS = 5.0  # time limit for one attempt to connect
_PAUSE_SECONDS = 0.05  # time between two attempts

_LENGTH = struct.Struct("!I")


class Answer(IntEnum):
    """Kind of an answer from rank 0."""

    NOTED = 1
    ADDRESSES = 2
    MISSING = 3
    REFUSED = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Meeting:
    """Address, key and time limit of the meeting of all ranks.

    Args:
        host: Name or address of rank 0's host.
        port: Port on which rank 0 listens.
        key: Key of the job.
        claim: Rank, world size and epoch of this process.
        seconds: Time limit in seconds for the arrival of all ranks.
    """

    host: str
    port: int
    key: bytes
    claim: Claim
    seconds: float

    @property
    def place(self) -> str:
        """Host and port of rank 0 as one text, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def join(meeting: Meeting, address: bytes) -> list[bytes]:
    """Exchange engine addresses with all ranks; every rank except rank 0 calls this function.

    Blocks until all ranks have come.

    Args:
        meeting: Address, key and time limit of the meeting.
        address: Address of this rank's engine, at most ADDRESS_LIMIT_BYTES long.

    Returns:
        The addresses of all engines, in the order of the ranks.

    Raises:
        PeerTimeoutError: some ranks did not come; the message names them.
        PeerError: rank 0 noted the address, but closed the connection before its last answer.
        AuthError: rank 0 has another job key.
        ConfigError: the process at rank 0's address is not rank 0 of this job.
    """
    deadline = time.monotonic() + meeting.seconds
    with _introduced(meeting, address, deadline) as channel:
        patience = meeting.seconds + _PATIENCE_SECONDS
        try:
            kind, body = channel.receive(time.monotonic() + patience, _answer_limit(meeting))
        except TimeoutError:
            raise PeerTimeoutError(
                f"rank 0 at {meeting.place} has not reported within {patience:g} s which ranks have"
                " come; look at the output of rank 0"
            ) from None
        except OSError as error:
            raise PeerError(
                f"rank 0 at {meeting.place} left while the ranks gathered: {reason_of(error)};"
                " look at its output"
            ) from error
    if kind == Answer.MISSING:
        raise PeerTimeoutError(body.decode(errors="replace"))
    return _unpack(body, meeting.claim.world_size)


def answer(kind: Answer, body: bytes, seal: Seal) -> bytes:
    """Return an answer of rank 0 as bytes, with its length and digest in front."""
    message = bytes([kind]) + body
    return HEAD.pack(len(message), seal.digest(message)) + message


def pack(addresses: list[bytes]) -> bytes:
    """Return the addresses of all ranks as bytes, each address with its length in front."""
    return b"".join(_LENGTH.pack(len(address)) + address for address in addresses)


def _unpack(body: bytes, count: int) -> list[bytes]:
    addresses: list[bytes] = []
    end = 0
    for _ in range(count):
        (size,) = _LENGTH.unpack_from(body, end)
        end += _LENGTH.size + size
        addresses.append(body[end - size : end])
    return addresses


def _answer_limit(meeting: Meeting) -> int:
    per_rank = _LENGTH.size + ADDRESS_LIMIT_BYTES
    return 1 + max(TEXT_LIMIT_BYTES, meeting.claim.world_size * per_rank)


class _Channel:
    """An authenticated connection to rank 0.

    Args:
        connection: Connection to rank 0, which this object closes.
        connector: Connector that has exchanged proofs with rank 0.
    """

    def __init__(self, connection: socket.socket, connector: Connector) -> None:
        self._connection = connection
        self._to_host, self._from_host = connector.seals()

    def __enter__(self) -> _Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, message: bytes) -> None:
        """Send a message, with its length and digest in front."""
        self._connection.sendall(HEAD.pack(len(message), self._to_host.digest(message)) + message)

    def receive(self, deadline: float, limit: int) -> tuple[Answer, bytes]:
        """Return the next answer of rank 0.

        Raises:
            TimeoutError: no complete answer has come by `deadline`.
            AuthError: the answer is too long or was changed on its way.
        """
        size, digest = HEAD.unpack(_read(self._connection, HEAD.size, deadline))
        if not 1 <= size <= limit:
            raise AuthError(f"rank 0 announces {size} bytes; allowed: 1 to {limit}")
        message = _read(self._connection, size, deadline)
        if not self._from_host.matches(message, digest):
            raise AuthError("a message of rank 0 was changed on the way")
        return Answer(message[0]), message[1:]


def _introduced(meeting: Meeting, address: bytes, deadline: float) -> _Channel:
    """Try to connect to rank 0 until rank 0 has noted this rank's address."""
    failure: OSError | None = None
    while (remaining := deadline - time.monotonic()) > 0:
        attempt = min(remaining, _ATTEMPT_SECONDS)
        try:
            return _introduce(meeting, address, time.monotonic() + attempt)
        except OSError as error:  # includes the unknown name of a container that is still starting
            failure = error
        except SlipstreamError as error:
            raise type(error)(f"rank 0 at {meeting.place}: {error}") from error
        time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))
    raise PeerTimeoutError(
        f"rank 0 did not come to {meeting.place} within {meeting.seconds:g} s ({failure}); look"
        " at the output of rank 0, check MASTER_ADDR and MASTER_PORT, or raise"
        " SLIPSTREAM_CONNECT_TIMEOUT"
    )


def _introduce(meeting: Meeting, address: bytes, deadline: float) -> _Channel:
    connection = _dial(meeting, deadline)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if connection.getsockname() == connection.getpeername():
            raise ConnectionRefusedError("the kernel connected the socket to itself")
        connector = Connector(meeting.key, meeting.claim)
        connection.sendall(connector.hello)
        connection.sendall(connector.prove(_read(connection, CHALLENGE_BYTES, deadline)))
        channel = _Channel(connection, connector)
        channel.send(address)
        kind, body = channel.receive(deadline, 1 + TEXT_LIMIT_BYTES)
        if kind == Answer.REFUSED:
            raise ConfigError(body.decode(errors="replace"))
    except BaseException:
        connection.close()
        raise
    return channel


def _dial(meeting: Meeting, deadline: float) -> socket.socket:
    """Connect to the first of rank 0's addresses that answers."""
    failure: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(
        meeting.host, meeting.port, type=socket.SOCK_STREAM
    ):
        connection = socket.socket(family, kind, protocol)
        try:
            # If rank 0 does not listen yet, the kernel may give this socket rank 0's port and
            # connect it to itself. With SO_REUSEADDR rank 0 can still listen on the port, even
            # while the closed socket is in TIME_WAIT.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure or OSError(f"{meeting.host} has no address")


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("it does not answer")
        connection.settimeout(remaining)
        piece = connection.recv(min(size - len(data), 1 << 16))
        if not piece:
            raise ConnectionResetError("it closed the connection")
        data += piece
    return bytes(data)
