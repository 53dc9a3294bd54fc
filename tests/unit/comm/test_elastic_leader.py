"""A member that leads while another one, before it, may lead as well."""

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from slipstream.cluster.ports import find_free_port_pair
from slipstream.comm.elastic.epoch import Epoch, JobMember
from slipstream.comm.elastic.formation import (
    Conversation,
    OutError,
    Patience,
    Standing,
    TooFewRanksError,
    UnreachableError,
)
from slipstream.comm.elastic.leader import Leader
from slipstream.comm.elastic.listener import MemberListener


def member(number: int, port: int) -> JobMember:
    return JobMember(uid=f"member {number}", host="here", address=f"127.0.0.1:{port}")


def soon(seconds: float) -> Callable[[], None]:
    """Return a function that fails when called after some seconds."""
    deadline = time.monotonic() + seconds

    def look() -> None:
        assert time.monotonic() < deadline, "nothing was heard"

    return look


def test_a_leader_does_not_wait_for_ever_for_one_that_leads_too() -> None:
    """Rank 0 is dead, and ranks 1 and 2 live; rank 2 leads, and rank 1 does not come to it."""
    key = b"k" * 32
    listener = MemberListener(key, "127.0.0.1", 0, lambda _: None)
    ports = (find_free_port_pair(), find_free_port_pair(), listener.port)
    members = tuple(member(number, port) for number, port in enumerate(ports))
    standing = Standing(
        me=members[2],
        epoch=Epoch(number=1, nonce="", members=members),
        lost=lambda: {members[0].uid},
        leaves=False,
        admits=False,
        min_ranks=1,
        max_ranks=3,
        expected=lambda: (),
        whole_hosts=False,
        patience=Patience(5.0),
    )
    try:
        with pytest.raises(UnreachableError, match="another member may lead"):
            Leader(standing, listener, key).form()
    finally:
        listener.close()


def test_a_lost_member_is_sent_away_while_others_are_waited_for() -> None:
    """Rank 0 has lost rank 1, which cannot be in its epoch, and waits for ranks 2 and 3."""
    key = b"k" * 32
    listener = MemberListener(key, "127.0.0.1", 0, lambda _: None)
    ports = (listener.port, *(find_free_port_pair() for _ in range(3)))
    members = tuple(member(number, port) for number, port in enumerate(ports))
    epoch = Epoch(number=1, nonce="", members=members)
    standing = Standing(
        me=members[0],
        epoch=epoch,
        lost=lambda: {members[1].uid},
        leaves=False,
        admits=False,
        min_ranks=1,
        max_ranks=4,
        expected=lambda: (),
        whole_hosts=False,
        patience=Patience(3.0),
    )
    waiting = Conversation(members[0].place, key, 5.0)
    wish = {"ask": "survive", "member": members[1], "epoch": epoch}
    waiting.say({**wish, "lost": [], "leaves": False})
    try:
        with pytest.raises(TooFewRanksError):
            Leader(standing, listener, key).form()
        with waiting, pytest.raises(UnreachableError, match="has lost the connection"):
            waiting.decision(soon(5.0))
    finally:
        listener.close()


@pytest.mark.parametrize("met", [True, False])
def test_a_leader_that_decided_too_late_learns_of_the_epoch_of_the_others(met: bool) -> None:
    """It was stopped while it decided. Their epoch has the number of its own."""
    key = b"k" * 32
    listener = MemberListener(key, "127.0.0.1", 0, lambda _: None)
    me, port = member(0, listener.port), 0
    who = {"say": "me", "number": 2, "nonce": "of the others", "met": met}
    other = MemberListener(key, "127.0.0.1", port, lambda _: {**who, "member": member(1, 1)})
    members = (me, member(1, other.port), member(2, other.port))
    standing = Standing(
        me=me,
        epoch=Epoch(number=2, nonce="of this one", members=members),
        lost=lambda: {"member 1", "member 2"},
        leaves=False,
        admits=False,
        min_ranks=1,
        max_ranks=3,
        expected=lambda: (),
        whole_hosts=False,
        patience=Patience(2.0),
    )
    try:
        with pytest.raises(OutError if met else TooFewRanksError):
            Leader(standing, listener, key).form()
    finally:
        listener.close()
        other.close()


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Return a socket whose connections are never answered, so nobody can tell who is dead."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.mark.parametrize("joining", [(1, 2, 3), (1, 2)])
def test_members_that_wait_to_join_are_in_no_other_group(
    silent: socket.socket, joining: tuple[int, ...]
) -> None:
    """Rank 0 has entered an epoch that ranks 1 to 3 have not; they heard of it, and join again."""
    key = b"k" * 32
    listener = MemberListener(key, "127.0.0.1", 0, lambda _: None)
    port = silent.getsockname()[1]
    members = tuple(member(number, listener.port if number == 0 else port) for number in range(4))
    standing = Standing(
        me=members[0],
        epoch=Epoch(number=2, nonce="", members=members),
        lost=lambda: {each.uid for each in members[1:]},
        leaves=False,
        admits=False,
        min_ranks=1,
        max_ranks=4,
        expected=lambda: (),
        whole_hosts=False,
        patience=Patience(4.0),
    )
    waiting = [Conversation(members[0].place, key, 5.0) for _ in joining]
    for conversation, number in zip(waiting, joining, strict=True):
        conversation.say({"ask": "join", "member": members[number]})
    try:
        if len(joining) == 3:
            assert Leader(standing, listener, key).form().epoch.members == members[:1]
        else:
            with pytest.raises(TooFewRanksError):
                Leader(standing, listener, key).form()
    finally:
        listener.close()
        for conversation in waiting:
            conversation.__exit__()
