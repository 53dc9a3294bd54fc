"""Rendezvous of all ranks at rank 0, where they exchange the addresses of their engines.

Rank 0 listens. Each other rank connects to rank 0, proves that it has the job key (auth.py), sends
its address and waits. Rank 0 answers at once that it has noted the address. When all ranks have
come, rank 0 sends all addresses to all ranks. If ranks are missing at the time limit, rank 0 sends
the numbers of the missing ranks to the ranks that came. After its last answer, rank 0 closes the
connections. The first byte of an answer states the kind of the answer (see `Answer`).
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from enum import IntEnum

from slipstream.comm.auth import Claim
from slipstream.comm.channel import Channel, open_channel
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

# Chosen by hand, not measured.
_PATIENCE_SECONDS = 10.0  # time by which rank 0 may start later than the ranks that wait for it
_ATTEMPT_SECONDS = 5.0  # time limit for one attempt to connect
_PAUSE_SECONDS = 0.05  # time between two attempts

_LENGTH = struct.Struct("!I")
_SAME_VERSION = "install the same version of Slipstream on every host"


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
    key: bytes = field(repr=False)
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
            kind, body = _receive(channel, time.monotonic() + patience, _answer_limit(meeting))
        except TimeoutError:
            raise PeerTimeoutError(
                f"rank 0 at {meeting.place} has not reported within {patience:g} s which ranks have"
                " come; look at the output of rank 0"
            ) from None
        except AuthError as error:
            raise AuthError(f"rank 0 at {meeting.place}: {error}") from error
        except OSError as error:
            raise PeerError(
                f"rank 0 at {meeting.place} left while the ranks gathered: {reason_of(error)};"
                " look at its output"
            ) from error
    if kind == Answer.MISSING:
        raise PeerTimeoutError(body.decode(errors="replace"))
    try:
        return _unpack(body, meeting.claim.world_size)
    except ValueError as error:
        raise PeerError(f"rank 0 at {meeting.place}: {error}; {_SAME_VERSION}") from error


def pack(addresses: list[bytes]) -> bytes:
    """Return the addresses of all ranks as bytes, each address with its length in front."""
    return b"".join(_LENGTH.pack(len(address)) + address for address in addresses)


def _unpack(body: bytes, count: int) -> list[bytes]:
    addresses: list[bytes] = []
    end = 0
    for _ in range(count):
        if end + _LENGTH.size > len(body):
            raise ValueError(f"it sent {len(addresses)} addresses, expected {count}")
        (size,) = _LENGTH.unpack_from(body, end)
        end += _LENGTH.size + size
        addresses.append(body[end - size : end])
    if end != len(body):
        raise ValueError(f"the addresses have {len(body)} bytes, expected {end}")
    return addresses


def _answer_limit(meeting: Meeting) -> int:
    per_rank = _LENGTH.size + ADDRESS_LIMIT_BYTES
    return 1 + max(TEXT_LIMIT_BYTES, meeting.claim.world_size * per_rank)


def _introduced(meeting: Meeting, address: bytes, deadline: float) -> Channel:
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


def _introduce(meeting: Meeting, address: bytes, deadline: float) -> Channel:
    channel = open_channel(
        meeting.host, meeting.port, key=meeting.key, claim=meeting.claim, deadline=deadline
    )
    try:
        channel.send(address)
        kind, body = _receive(channel, deadline, 1 + TEXT_LIMIT_BYTES)
        if kind == Answer.REFUSED:
            raise ConfigError(body.decode(errors="replace"))
    except BaseException:
        channel.close()
        raise
    return channel


def _receive(channel: Channel, deadline: float, limit: int) -> tuple[Answer, bytes]:
    message = channel.receive(deadline, limit)
    try:
        return Answer(message[0]), message[1:]
    except ValueError:
        raise PeerError(f"it sent an answer of kind {message[0]}; {_SAME_VERSION}") from None
