"""The proof of the job key, with every message that is wrong in one way."""

import struct

import pytest

from slipstream.comm.auth import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    PROOF_BYTES,
    PROTOCOL_VERSION,
    Acceptor,
    Claim,
    Connector,
)
from slipstream.errors import AuthError, ConfigError

KEY = b"a key of the job"
CLAIM = Claim(rank=3, world_size=8, epoch=2)


def changed(message: bytes, at: int) -> bytes:
    """Return the message with one bit of one byte turned."""
    return message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]


def test_both_ends_prove_the_key_and_seal_what_follows() -> None:
    connector = Connector(KEY, CLAIM)
    acceptor = Acceptor(KEY, connector.hello)
    proof = connector.prove(acceptor.challenge)
    assert (len(connector.hello), len(acceptor.challenge), len(proof)) == (
        HELLO_BYTES,
        CHALLENGE_BYTES,
        PROOF_BYTES,
    )
    assert acceptor.verify(proof) == CLAIM
    to_acceptor, _ = connector.seals()
    to_connector, from_connector = acceptor.seals()
    digest = to_acceptor.digest(b"address")
    assert from_connector.matches(b"address", digest)
    assert not from_connector.matches(b"address", digest), "it is not valid a second time"
    assert to_connector.digest(b"address") != digest, "nor in the other direction"


def test_an_acceptor_with_another_key_is_found_out_by_the_connector() -> None:
    connector = Connector(KEY, CLAIM)
    with pytest.raises(AuthError, match="another job key"):
        connector.prove(Acceptor(b"another key here", connector.hello).challenge)


def test_a_connector_with_another_key_is_found_out_by_the_acceptor() -> None:
    connector = Connector(KEY, CLAIM)
    acceptor = Acceptor(KEY, connector.hello)
    with pytest.raises(AuthError, match="could not prove"):
        acceptor.verify(bytes(PROOF_BYTES))


@pytest.mark.parametrize("at", range(12, HELLO_BYTES))
def test_no_byte_of_the_claim_or_the_nonce_can_be_changed_on_the_way(at: int) -> None:
    connector = Connector(KEY, CLAIM)
    acceptor = Acceptor(KEY, changed(connector.hello, at))
    with pytest.raises(AuthError):
        connector.prove(acceptor.challenge)


@pytest.mark.parametrize("at", range(10, CHALLENGE_BYTES))
def test_no_byte_of_the_challenge_can_be_changed_on_the_way(at: int) -> None:
    connector = Connector(KEY, CLAIM)
    acceptor = Acceptor(KEY, connector.hello)
    with pytest.raises(AuthError):
        connector.prove(changed(acceptor.challenge, at))


def test_a_proof_is_of_one_conversation() -> None:
    connector = Connector(KEY, CLAIM)
    proof = connector.prove(Acceptor(KEY, connector.hello).challenge)
    with pytest.raises(AuthError):
        Acceptor(KEY, connector.hello).verify(proof)


def test_a_challenge_that_is_sent_back_is_no_proof() -> None:
    connector = Connector(KEY, CLAIM)
    acceptor = Acceptor(KEY, connector.hello)
    with pytest.raises(AuthError):
        acceptor.verify(acceptor.challenge[-PROOF_BYTES:])


def test_another_version_is_named_once_the_key_is_proved() -> None:
    connector = Connector(KEY, CLAIM)
    other = struct.pack("!8sH", b"SLIPMEET", PROTOCOL_VERSION + 1)
    connector.hello = other + connector.hello[len(other) :]
    acceptor = Acceptor(KEY, connector.hello)
    with pytest.raises(ConfigError, match=f"version {PROTOCOL_VERSION + 1} of the protocol"):
        acceptor.verify(connector.prove(acceptor.challenge))


@pytest.mark.parametrize("message", [b"GET / HTTP/1.1\r\n".ljust(HELLO_BYTES), bytes(HELLO_BYTES)])
def test_another_protocol_is_refused(message: bytes) -> None:
    with pytest.raises(ConfigError, match="does not speak"):
        Acceptor(KEY, message)
    with pytest.raises(ConfigError, match="does not speak"):
        Connector(KEY, CLAIM).prove(message.ljust(CHALLENGE_BYTES))


def test_what_travels_has_the_sizes_and_the_order_that_the_module_names() -> None:
    connector = Connector(KEY, CLAIM)
    challenge = Acceptor(KEY, connector.hello).challenge
    assert (HELLO_BYTES, CHALLENGE_BYTES, PROOF_BYTES, PROTOCOL_VERSION) == (56, 76, 32, 1)
    assert connector.hello[:24] == struct.pack("!8sHxxIII", b"SLIPMEET", 1, 3, 8, 2)
    assert challenge[:12] == b"SLIPMEET\0\1\0\0"
    assert Connector(KEY, CLAIM).hello[24:] != connector.hello[24:], "a nonce is drawn each time"


def test_seals_count_so_that_messages_cannot_change_places() -> None:
    connector = Connector(KEY, CLAIM)
    acceptor = Acceptor(KEY, connector.hello)
    acceptor.verify(connector.prove(acceptor.challenge))
    to_connector, from_connector = acceptor.seals()
    to_acceptor, from_acceptor = connector.seals()
    for sends, hears in ((to_connector, from_acceptor), (to_acceptor, from_connector)):
        first, second = sends.digest(b"a"), sends.digest(b"a")
        assert first != second
        assert hears.matches(b"a", first)
        assert not hears.matches(b"b", second)
