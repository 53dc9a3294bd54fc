"""All ranks tell rank 0 where their engines listen, and hear where all the others do.

Rank 0 listens, each other rank dials it, proves the job key (auth.py), sends its address and waits.
Rank 0 answers at once that it has noted the address, and once more when all have come or the time
is over: with the addresses of all, or with the names of those who are missing. Then it closes. A
message is its length, its digest and its bytes; the first byte of an answer says what it is.
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
from slipstream.errors import AuthError, ConfigError, PeerError, PeerTimeoutError, SlipstreamError

ADDRESS_LIMIT_BYTES = 4096
TEXT_LIMIT_BYTES = 4096
HEAD = struct.Struct(f"!I{DIGEST_BYTES}s")

# Rank 0 may have begun to wait later than the ranks that wait for its word.
_PATIENCE_SECONDS = 10.0
_ATTEMPT_SECONDS = 5.0
_PAUSE_SECONDS = 0.05

_LENGTH = struct.Struct("!I")


class Answer(IntEnum):
    """What rank 0 says."""

    NOTED = 1
    ADDRESSES = 2
    MISSING = 3
    REFUSED = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Meeting:
    """Address, key and time limit of the meeting of all ranks.

    Args:
        host: Name or address of rank 0's host.
        port: Port that rank 0 listens at.
        key: The job's key.
        claim: Claim of this rank.
        seconds: Longest wait for the other ranks.
    """

    host: str
    port: int
    key: bytes
    claim: Claim
    seconds: float

    @property
    def place(self) -> str:
        """Host and port, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def join(meeting: Meeting, address: bytes) -> list[bytes]:
    """Exchange addresses with all ranks, on a rank that is not 0. Blocks until all are there.

    Args:
        meeting: Address, key and time limit of the meeting.
        address: Address of this rank, at most ADDRESS_LIMIT_BYTES.

    Returns:
        The addresses of all ranks, by rank.

    Raises:
        PeerTimeoutError: rank 0 or others did not come; it names them.
        PeerError: rank 0 came and went away.
        AuthError: rank 0 was given another key.
        ConfigError: what is there is not rank 0 of this job.
    """
    deadline = time.monotonic() + meeting.seconds
    with _introduced(meeting, address, deadline) as channel:
        patience = meeting.seconds + _PATIENCE_SECONDS
        try:
            kind, body = channel.receive(time.monotonic() + patience, _answer_limit(meeting))
        except TimeoutError:
            raise PeerTimeoutError(
                f"rank 0 at {meeting.place} has not said within {patience:g} s who has come; see"
                " what rank 0 does"
            ) from None
        except OSError as error:
            raise PeerError(
                f"rank 0 at {meeting.place} went away while the ranks gathered: {error}; see its"
                " output"
            ) from error
    if kind == Answer.MISSING:
        raise PeerTimeoutError(body.decode(errors="replace"))
    return _unpack(body, meeting.claim.world_size)


def answer(kind: Answer, body: bytes, seal: Seal) -> bytes:
    """Return a message of rank 0 as it travels."""
    message = bytes([kind]) + body
    return HEAD.pack(len(message), seal.digest(message)) + message


def pack(addresses: list[bytes]) -> bytes:
    """Return the addresses of all ranks as rank 0 sends them."""
    return b"".join(_LENGTH.pack(len(each)) + each for each in addresses)


def _unpack(body: bytes, count: int) -> list[bytes]:
    addresses: list[bytes] = []
    at = 0
    for _ in range(count):
        (size,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size + size
        addresses.append(body[at - size : at])
    return addresses


def _answer_limit(meeting: Meeting) -> int:
    per_rank = _LENGTH.size + ADDRESS_LIMIT_BYTES
    return 1 + max(TEXT_LIMIT_BYTES, meeting.claim.world_size * per_rank)


class _Channel:
    """A proven connection to rank 0.

    Args:
        connection: Connection that this object owns.
        connector: Connector that has proved the key.
    """

    def __init__(self, connection: socket.socket, connector: Connector) -> None:
        self._connection = connection
        self._to_host, self._from_host = connector.seals()

    def __enter__(self) -> _Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, message: bytes) -> None:
        """Send a sealed message."""
        self._connection.sendall(HEAD.pack(len(message), self._to_host.digest(message)) + message)

    def receive(self, deadline: float, limit: int) -> tuple[Answer, bytes]:
        """Return the next answer; TimeoutError at the deadline."""
        size, digest = HEAD.unpack(_read(self._connection, HEAD.size, deadline))
        if not 1 <= size <= limit:
            raise AuthError(f"rank 0 announces {size} bytes; allowed: 1 to {limit}")
        message = _read(self._connection, size, deadline)
        if not self._from_host.matches(message, digest):
            raise AuthError("a message of rank 0 was changed on its way")
        return Answer(message[0]), message[1:]


def _introduced(meeting: Meeting, address: bytes, deadline: float) -> _Channel:
    """Dial rank 0 until it has noted this rank's address."""
    trouble: OSError | None = None
    while (left := deadline - time.monotonic()) > 0:
        try:
            return _introduce(meeting, address, time.monotonic() + min(left, _ATTEMPT_SECONDS))
        except OSError as error:  # also a name not known yet: that of a container that is starting
            trouble = error
        except SlipstreamError as error:
            raise type(error)(f"rank 0 at {meeting.place}: {error}") from error
        time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))
    raise PeerTimeoutError(
        f"rank 0 did not come to {meeting.place} within {meeting.seconds:g} s ({trouble}); see what"
        " rank 0 does, check MASTER_ADDR and MASTER_PORT, or raise SLIPSTREAM_CONNECT_TIMEOUT"
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
    """Connect to the first address of rank 0's host that answers."""
    trouble: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(
        meeting.host, meeting.port, type=socket.SOCK_STREAM
    ):
        connection = socket.socket(family, kind, protocol)
        try:
            # The kernel may choose the very port that rank 0 has not begun to listen at: a socket
            # connected to itself must not keep it from there, nor its remains for a minute.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            connection.connect(address)
        except OSError as error:
            connection.close()
            trouble = error
        else:
            return connection
    raise trouble or OSError(f"{meeting.host} has no address")


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it does not answer")
        connection.settimeout(left)
        piece = connection.recv(min(size - len(data), 1 << 16))
        if not piece:
            raise ConnectionResetError("it closed the connection")
        data += piece
    return bytes(data)
