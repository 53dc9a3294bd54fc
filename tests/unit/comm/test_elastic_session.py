"""A member that looks for the leader of the next epoch while others come to it."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from slipstream import _core
from slipstream.comm.config import engine_config
from slipstream.comm.elastic.epoch import Epoch, JobMember
from slipstream.comm.elastic.formation import (
    Conversation,
    Formed,
    OutError,
    Patience,
    Standing,
    UnreachableError,
)
from slipstream.comm.elastic.listener import MemberListener
from slipstream.comm.elastic.session import ElasticSession
from slipstream.errors import PeerError
from slipstream.settings import Settings, detect_launcher

KEY = "00" * 32


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Return a socket that accepts connections and never answers, as a stopped process does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def begun() -> Iterator[ElasticSession]:
    """Return a session of this process, without an epoch."""
    settings = Settings.from_environment({"SLIPSTREAM_JOB_KEY": KEY})
    session = ElasticSession(settings, detect_launcher({}))
    yield session
    session.close(is_over=False)


def soon(seconds: float) -> Callable[[], None]:
    """Return a function that fails when called after some seconds."""
    deadline = time.monotonic() + seconds

    def look() -> None:
        assert time.monotonic() < deadline, "nothing was heard"

    return look


def looks_for_the_leader(session: ElasticSession, first_port: int, error: str) -> None:
    """Let rank 2 come to rank 1, which has lost rank 0 and tries it once more, and stay there."""
    first, last = (
        JobMember(uid=f"member {number}", host="here", address=f"127.0.0.1:{port}")
        for number, port in ((0, first_port), (2, 1))
    )
    session.epoch = Epoch(number=1, nonce="", members=(first, session.me, last))
    standing = Standing(
        me=session.me,
        epoch=session.epoch,
        lost=lambda: {first.uid},
        leaves=False,
        admits=False,
        min_ranks=1,
        max_ranks=3,
        expected=lambda: (),
        whole_hosts=False,
        patience=Patience(5.0),
    )
    unreachable: set[str] = set()

    def look() -> None:
        with pytest.raises(UnreachableError, match=error):
            session._follow_or_lead(standing, unreachable)

    looking = threading.Thread(target=look)
    with Conversation(session.me.place, session._key, 5.0) as conversation:
        wish = {"ask": "survive", "member": last, "epoch": session.epoch}
        conversation.say({**wish, "lost": [], "leaves": False})
        deadline = time.monotonic() + 5.0
        while not session._listener.arrivals("survive") and time.monotonic() < deadline:
            time.sleep(0.01)
        looking.start()
        looking.join()
        session._listener.answer_again()
        assert unreachable == {first.uid}
        assert [each.member for each in session._listener.arrivals("survive")] == [last]


def test_nobody_is_sent_to_a_member_that_does_not_answer(
    begun: ElasticSession, silent: socket.socket
) -> None:
    looks_for_the_leader(begun, silent.getsockname()[1], "nobody answers")


def test_nobody_is_sent_to_a_member_that_sends_this_one_away(begun: ElasticSession) -> None:
    other = MemberListener(begun._key, "127.0.0.1", 0, lambda _: {"say": "elsewhere"})
    try:
        looks_for_the_leader(begun, other.port, "has lost the connection")
    finally:
        other.close()


def test_a_member_whose_connection_broke_before_the_decision_is_told_again(
    begun: ElasticSession,
) -> None:
    """The others are in the next epoch already, and wait for it there."""
    other = JobMember(uid="member 1", host="here", address="127.0.0.1:1")
    before = Epoch(number=1, nonce="before", members=(begun.me, other))
    begun.epoch = Epoch.after(1, before.members)
    begun._nonces = {before.nonce, begun.epoch.nonce}
    with Conversation(begun.me.place, begun._key, 5.0) as conversation:
        wish = {"ask": "survive", "member": other, "epoch": before}
        conversation.say({**wish, "lost": [], "leaves": False})
        decision = conversation.decision(soon(5.0))
    assert isinstance(decision, Formed)
    assert (decision.epoch, decision.keeps) == (begun.epoch, True)


def test_a_member_of_another_epoch_with_the_same_number_is_sent_out(begun: ElasticSession) -> None:
    other = JobMember(uid="member 1", host="here", address="127.0.0.1:1")
    begun.epoch = Epoch(number=2, nonce="of the others", members=(begun.me,))
    begun._have_met = True
    theirs = Epoch(number=2, nonce="of a leader that was stopped", members=(begun.me, other))
    with Conversation(begun.me.place, begun._key, 5.0) as conversation:
        wish = {"ask": "survive", "member": other, "epoch": theirs}
        conversation.say({**wish, "lost": [], "leaves": False})
        with pytest.raises(OutError):
            conversation.decision(soon(5.0))


def test_a_member_that_dies_before_it_has_connected_delays_the_others_shortly(
    begun: ElasticSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 makes an engine and never connects; the limit of a first start is two minutes."""
    monkeypatch.setattr(sys.modules[ElasticSession.__module__], "_ENGINE_SECONDS", 2.0)
    config = engine_config(begun._settings, "127.0.0.1")
    other = _core.Runtime(rank=1, world_size=2, epoch=2, key=b"k" * 32, config=config)
    member = JobMember(uid="member 1", host="here", address="127.0.0.1:1")
    epoch = Epoch(number=2, nonce="n" * 32, members=(begun.me, member))
    formed = Formed(epoch=epoch, keeps=False, exchange=lambda own: [own, other.address()])
    start = time.monotonic()
    with pytest.raises(PeerError, match="no connection yet"):
        begun._move_to(formed)
    assert time.monotonic() - start < 60.0
    other.close()
