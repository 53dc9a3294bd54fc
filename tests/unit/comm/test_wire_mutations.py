"""Thousands of changed messages, from strangers and from peers that have the job key and an error.

Every parser may refuse a message by the errors that it documents. Nothing else may be raised, and a
listener must go on serving others.
"""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Iterator

import pytest
from mutations import changed_bytes, changed_json, sweep

from slipstream.comm.auth import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    PROOF_BYTES,
    Acceptor,
    Claim,
    Connector,
)
from slipstream.comm.channel import Channel, open_channel, sealed
from slipstream.comm.elastic.epoch import Epoch, JobMember, decode, encode
from slipstream.comm.elastic.formation import Conversation
from slipstream.comm.elastic.listener import MESSAGE_LIMIT_BYTES, Arrival, MemberListener
from slipstream.comm.rendezvous import Answer, _receive, _unpack, pack
from slipstream.errors import AuthError, ConfigError, PeerError

KEY = b"a key of the job"
CLAIM = Claim(rank=1, world_size=2, epoch=1)
ME = JobMember(uid="a", host="here", address="127.0.0.1:4000", slot=1)
OTHER = JobMember(uid="b", host="there", address="[::1]:4000")
EPOCH = Epoch(number=3, nonce="cafe", members=(ME, OTHER))
WISHES = [
    {"ask": "who"},
    {"ask": "join", "member": ME},
    {"ask": "leave", "member": ME},
    {"ask": "survive", "member": ME, "epoch": EPOCH, "lost": ["b"], "leaves": False},
    {"engine": "00ff"},
]
ANSWERS = [
    {"say": "me", "member": ME, "number": 3, "nonce": "", "met": True},
    {"say": "form", "epoch": EPOCH, "keeps": True},
    {"say": "go", "member": OTHER},
    {"say": "out", "why": "the others went on"},
    {"say": "addresses", "addresses": ["00", "ff"]},
    {"say": "left"},
]


class Pair:
    """Two ends of a connection that have proved the key to each other; the test plays one."""

    def __init__(self) -> None:
        near, self.far = socket.socketpair()
        connector = Connector(KEY, CLAIM)
        acceptor = Acceptor(KEY, connector.hello)
        acceptor.verify(connector.prove(acceptor.challenge))
        self.channel = Channel(near, connector)
        self.seal, _ = acceptor.seals()

    def send(self, message: bytes) -> None:
        self.far.sendall(sealed(message, self.seal))

    def close(self) -> None:
        self.channel.close()
        self.far.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def test_a_changed_message_of_members_is_read_or_refused() -> None:
    messages = [encode(values) for values in WISHES + ANSWERS]
    read = 0
    for message in sweep(messages, changed_json, 10_000, seed=1):
        with contextlib.suppress(ValueError):
            values = decode(message)
            for member in (values.get("member", ME), *values.get("epoch", EPOCH).members):
                assert member.place[1] < 1 << 16
            read += 1
    assert read > 100  # so the sweep also tests what comes after reading


def test_a_conversation_takes_any_answer_for_one_or_for_the_end(pair: Pair) -> None:
    answers = [encode(values) for values in ANSWERS]
    conversation = Conversation.__new__(Conversation)
    conversation._channel = pair.channel
    for answer in sweep(answers, changed_json, 3_000, seed=2):
        if not answer or b'"wait"' in answer:
            continue
        pair.send(answer)
        with contextlib.suppress(PeerError):
            decision = conversation.decision(lambda: None)
            assert isinstance(decision, JobMember) or decision.epoch.members


def test_a_message_whose_bytes_were_changed_is_refused() -> None:
    rng = random.Random(3)
    for _ in range(300):
        with contextlib.closing(Pair()) as pair:
            message = sealed(encode(WISHES[3]), pair.seal)
            changed = changed_bytes(message, rng)
            if changed.startswith(message):  # what comes behind it belongs to the next message
                continue
            pair.far.sendall(changed)
            pair.far.shutdown(socket.SHUT_WR)
            with pytest.raises((AuthError, OSError)):
                pair.channel.receive(time.monotonic() + 5, 1000)


def test_a_changed_proof_of_the_key_is_refused() -> None:
    connector = Connector(KEY, CLAIM)
    acceptor = Acceptor(KEY, connector.hello)
    for challenge in sweep([acceptor.challenge], changed_bytes, 2_000, seed=4):
        whole = challenge[:CHALLENGE_BYTES].ljust(CHALLENGE_BYTES, b"\0")
        if whole != acceptor.challenge:
            with pytest.raises((AuthError, ConfigError)):
                connector.prove(whole)
    for hello in sweep([connector.hello], changed_bytes, 2_000, seed=5):
        whole = hello[:HELLO_BYTES].ljust(HELLO_BYTES, b"\0")
        if whole != connector.hello:
            with pytest.raises((AuthError, ConfigError)):
                Acceptor(KEY, whole).verify(connector.prove(acceptor.challenge))


def test_changed_answers_of_the_rendezvous_are_read_or_refused(pair: Pair) -> None:
    addresses = [b"one", b"", b"three"]
    bodies = [bytes([Answer.ADDRESSES]) + pack(addresses), bytes([Answer.NOTED])]
    for body in sweep(bodies, changed_bytes, 5_000, seed=6):
        if not body:
            continue
        pair.send(body)
        with contextlib.suppress(PeerError, ValueError):
            kind, rest = _receive(pair.channel, time.monotonic() + 5, 5000)
            if kind == Answer.ADDRESSES:
                assert pack(_unpack(rest, 3)) == rest


@pytest.fixture
def listener() -> Iterator[MemberListener]:
    def answer(arrival: Arrival) -> dict[str, object] | None:
        if arrival.kind == "survive":  # what the training's thread would read
            assert arrival.wish["epoch"].leader, arrival.wish["lost"]
        return ANSWERS[0] if arrival.kind == "who" else None

    made = MemberListener(KEY, "127.0.0.1", 0, answer)
    yield made
    made.close()


def is_served(listener: MemberListener) -> bool:
    """Return whether a process with the key gets its answer."""
    deadline = time.monotonic() + 20
    place = ("127.0.0.1", listener.port)
    with open_channel(*place, key=KEY, claim=CLAIM, deadline=deadline) as channel:
        channel.send(encode({"ask": "who"}))
        return decode(channel.receive(deadline, MESSAGE_LIMIT_BYTES))["say"] == "me"


def test_a_listener_survives_strangers(listener: MemberListener) -> None:
    hello = Connector(KEY, CLAIM).hello
    whole = hello + bytes(PROOF_BYTES)
    for message in sweep([whole, hello, b"GET / HTTP/1.1\r\n\r\n"], changed_bytes, 400, seed=7):
        with socket.create_connection(("127.0.0.1", listener.port), 20) as connection:
            connection.sendall(message)
    assert is_served(listener)
    assert not listener.arrivals("")[64:]  # strangers do not pile up


def test_a_listener_survives_members_with_errors(listener: MemberListener) -> None:
    messages = [encode(values) for values in WISHES]
    for message in sweep(messages, changed_json, 400, seed=8):
        deadline = time.monotonic() + 20
        place = ("127.0.0.1", listener.port)
        with open_channel(*place, key=KEY, claim=CLAIM, deadline=deadline) as channel:
            if message:
                channel.send(message)
    assert is_served(listener)
