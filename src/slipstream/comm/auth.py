"""Mutual authentication of the two ends of a connection, which prove that they have the job key.

    connector  Hello      magic, version, rank, world size, epoch, nonce
    acceptor   Challenge  magic, version, nonce, HMAC over "accept", Hello and these three fields
    connector  Proof      HMAC over "connect", Hello and the same three fields

The connector is the process that opened the connection, and the acceptor is the process that
listened. Both HMACs cover both nonces, the rank, the world size, the epoch and the version. Hello,
Challenge and Proof have fixed sizes. The words "accept" and "connect" make the two HMACs differ, so
nobody can send the acceptor's HMAC back as a proof.

Every later message carries an HMAC over its bytes and its number. The key of this HMAC is valid for
one connection and one direction, so nobody else can change, repeat or insert messages.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass

from slipstream.errors import AuthError, ConfigError

PROTOCOL_VERSION = 1
DIGEST_BYTES = 32

MAGIC = b"SLIPMEET"
_NONCE_BYTES = 32
_PREFIX = struct.Struct("!8sHxx")  # fixed for all versions
_CLAIM = struct.Struct("!III")

HELLO_BYTES = _PREFIX.size + _CLAIM.size + _NONCE_BYTES
CHALLENGE_BYTES = _PREFIX.size + _NONCE_BYTES + DIGEST_BYTES
PROOF_BYTES = DIGEST_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """Identity that a rank claims to have.

    Args:
        rank: Rank of the claimant, from 0 to world_size - 1.
        world_size: Number of ranks of the job.
        epoch: Number of engines that the claiming process has made, including the current engine.
    """

    rank: int
    world_size: int
    epoch: int


class Seal:
    """Maker and checker of the digests of all messages in one direction of a connection.

    Args:
        key: Key that is valid for this connection and this direction only.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._messages = 0

    def digest(self, message: bytes) -> bytes:
        """Return the digest of the next message in this direction, and count the message."""
        self._messages += 1
        return _digest(self._key, self._messages.to_bytes(8, "big"), message)

    def matches(self, message: bytes, digest: bytes) -> bool:
        """Return whether `digest` fits the next message in this direction; count the message."""
        return hmac.compare_digest(self.digest(message), digest)


class Connector:
    """The side of an authentication that opened the connection.

    Args:
        key: Key of the job.
        claim: Rank, world size and epoch of this process, which are sent to the acceptor.
    """

    def __init__(self, key: bytes, claim: Claim) -> None:
        self._key = _purpose_key(key)
        identity = _CLAIM.pack(claim.rank, claim.world_size, claim.epoch)
        self.hello = _prefix() + identity + secrets.token_bytes(_NONCE_BYTES)

    def prove(self, challenge: bytes) -> bytes:
        """Check that the acceptor has the job key, and return the proof that this process has it.

        Args:
            challenge: Challenge of the acceptor, CHALLENGE_BYTES long.

        Raises:
            ConfigError: the acceptor is not Slipstream, or has another version of the protocol.
            AuthError: the acceptor has another job key.
        """
        _check_magic(challenge)
        _check_version(challenge)
        head, digest = challenge[:-DIGEST_BYTES], challenge[-DIGEST_BYTES:]
        self._transcript = self.hello + head
        if not hmac.compare_digest(_digest(self._key, b"accept", self._transcript), digest):
            raise AuthError(
                "it has another job key than this rank; give every rank the same key"
                " (SLIPSTREAM_JOB_KEY or SLIPSTREAM_KEY_FILE)"
            )
        return _digest(self._key, b"connect", self._transcript)

    def seals(self) -> tuple[Seal, Seal]:
        """Return a `Seal` for messages to send and one for received ones; call prove() first."""
        return _seals(self._key, self._transcript)


class Acceptor:
    """The side of an authentication that accepted the connection.

    Args:
        key: Key of the job.
        hello: First message of the connector, HELLO_BYTES long. Only verify() checks its version,
            so a connector of another version learns the acceptor's version from the challenge.

    Raises:
        ConfigError: the hello is not from Slipstream.
    """

    def __init__(self, key: bytes, hello: bytes) -> None:
        _check_magic(hello)
        self._key = _purpose_key(key)
        self._hello = hello
        head = _prefix() + secrets.token_bytes(_NONCE_BYTES)
        self._transcript = hello + head
        self.challenge = head + _digest(self._key, b"accept", self._transcript)

    def verify(self, proof: bytes) -> Claim:
        """Check that the connector has the job key; return its rank, world size and epoch.

        Raises:
            AuthError: the connector does not have the job key.
            ConfigError: the connector uses another version of the protocol.
        """
        if not hmac.compare_digest(_digest(self._key, b"connect", self._transcript), proof):
            raise AuthError(
                "it could not prove the job key, so it belongs to another job or has another key"
            )
        _check_version(self._hello)
        rank, world_size, epoch = _CLAIM.unpack_from(self._hello, _PREFIX.size)
        return Claim(rank=rank, world_size=world_size, epoch=epoch)

    def seals(self) -> tuple[Seal, Seal]:
        """Return a `Seal` for messages to send and one for received ones; call verify() first."""
        to_acceptor, to_connector = _seals(self._key, self._transcript)
        return to_connector, to_acceptor


def _prefix() -> bytes:
    return _PREFIX.pack(MAGIC, PROTOCOL_VERSION)


def _check_magic(message: bytes) -> None:
    if not message.startswith(MAGIC):
        raise ConfigError("it does not speak Slipstream's protocol")


def _check_version(message: bytes) -> None:
    _, version = _PREFIX.unpack_from(message)
    if version != PROTOCOL_VERSION:
        raise ConfigError(
            f"it speaks version {version} of the protocol, this rank speaks {PROTOCOL_VERSION};"
            " install the same version of Slipstream on every host"
        )


def _purpose_key(key: bytes) -> bytes:
    # The engine's handshakes derive other keys from the job key, so that a digest of the rendezvous
    # is never valid in a handshake.
    return _digest(key, b"slipstream rendezvous key", b"")


def _seals(key: bytes, transcript: bytes) -> tuple[Seal, Seal]:
    return (
        Seal(_digest(key, b"seal to acceptor", transcript)),
        Seal(_digest(key, b"seal to connector", transcript)),
    )


def _digest(key: bytes, label: bytes, message: bytes) -> bytes:
    framed = len(label).to_bytes(2, "big") + label + message
    return hmac.new(key, framed, hashlib.sha256).digest()
