"""A member that leads while another one, before it, may lead as well."""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from slipstream.cluster.launch.ports import find_free_port_pair
from slipstream.comm.elastic import leader
from slipstream.comm.elastic.epoch import Epoch, JobMember
from slipstream.comm.elastic.formation import (
    Conversation,
    Formed,
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


def test_groups_that_lost_each_other_and_are_all_too_small_reunite(
    monkeypatch: pytest.MonkeyPatch, silent: socket.socket
) -> None:
    """Links failed one after the other: 0 and 1 are connected, 2 and 3 are, and 4 is alone."""
    monkeypatch.setattr(leader, "_REUNION_SECONDS", 1.0)
    key = b"k" * 32
    listener = MemberListener(key, "127.0.0.1", 0, lambda _: None)
    ports = (listener.port, *[silent.getsockname()[1]] * 4)
    members = tuple(member(number, port) for number, port in enumerate(ports))
    epoch = Epoch(number=1, nonce="", members=members)
    groups = ((0, 1), (2, 3), (4,))
    lost_by = {
        number: [each.uid for rank, each in enumerate(members) if rank not in group]
        for group in groups
        for number in group
    }
    standing = Standing(
        me=members[0],
        epoch=epoch,
        lost=lambda: lost_by[0],
        leaves=False,
        admits=False,
        min_ranks=2,
        max_ranks=5,
        expected=lambda: (),
        whole_hosts=False,
        patience=Patience(20.0),
    )
    waiting: list[Conversation] = []

    def come() -> None:
        """Let all others come, who were sent away before; the one that is waited for is last."""
        for number in (2, 3, 4, 1):
            while number == 1 and len(listener.arrivals("survive")) < 3:
                time.sleep(0.01)
            conversation = Conversation(members[0].place, key, 5.0)
            waiting.append(conversation)
            wish = {"ask": "survive", "member": members[number], "epoch": epoch}
            conversation.say({**wish, "lost": lost_by[number], "leaves": False})

    timer = threading.Timer(1.5, come)
    timer.start()
    try:
        formed = Leader(standing, listener, key).form()
        assert formed.epoch.members == members
        assert not formed.keeps, "their engines have no connections"
        for conversation in waiting:
            decision = conversation.decision(soon(5.0))
            assert isinstance(decision, Formed)
            assert (decision.epoch.members, decision.keeps) == (members, False)
    finally:
        timer.join()
        listener.close()
        for conversation in waiting:
            conversation.__exit__()


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


def test_a_joiner_that_makes_no_engine_is_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its host has lost its power while the epoch forms, so its connection says nothing."""
    monkeypatch.setattr(leader, "_ADDRESS_SECONDS", 0.3)
    key = b"k" * 32
    listener = MemberListener(key, "127.0.0.1", 0, lambda _: None)
    me = member(0, listener.port)
    standing = Standing(
        me=me,
        epoch=Epoch(number=1, nonce="", members=(me,)),
        lost=lambda: (),
        leaves=False,
        admits=True,
        min_ranks=1,
        max_ranks=2,
        expected=lambda: (),
        whole_hosts=False,
        patience=Patience(10.0),
    )
    joining = Conversation(me.place, key, 5.0)
    joining.say({"ask": "join", "member": member(1, find_free_port_pair())})
    try:
        while not listener.arrivals("join"):
            listener.wait(1.0)
        first = Leader(standing, listener, key).form()
        assert len(first.epoch.members) == 2
        with pytest.raises(UnreachableError, match="did not make an engine"):
            first.exchange(b"an address")
        while listener.arrivals("join"):
            listener.wait(1.0)
        assert Leader(standing, listener, key).form().epoch.members == (me,)
    finally:
        joining.__exit__()
        listener.close()
