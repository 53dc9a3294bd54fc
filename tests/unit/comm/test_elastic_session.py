"""A member that looks for the leader of the next epoch while others come to it."""

import socket
import threading
import time

import pytest

from slipstream.comm.elastic.epoch import Epoch, JobMember
from slipstream.comm.elastic.formation import (
    Conversation,
    Patience,
    Standing,
    UnreachableError,
)
from slipstream.comm.elastic.session import ElasticSession
from slipstream.settings import Settings, detect_launcher

KEY = "00" * 32


@pytest.fixture
def silent() -> socket.socket:
    """Return a socket that accepts connections and never answers, as a stopped process does."""
    return socket.create_server(("127.0.0.1", 0))


def test_nobody_is_sent_to_a_member_that_may_be_dead(silent: socket.socket) -> None:
    """Rank 0 has stopped, and rank 2 comes to rank 1 while rank 1 still tries to reach rank 0."""
    settings = Settings.from_environment({"SLIPSTREAM_JOB_KEY": KEY})
    session = ElasticSession(settings, detect_launcher({}))
    first, last = (
        JobMember(uid=f"member {number}", host="here", address=f"127.0.0.1:{port}")
        for number, port in ((0, silent.getsockname()[1]), (2, 1))
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

    def look_for_the_leader() -> None:
        with pytest.raises(UnreachableError, match="nobody answers"):
            session._follow_or_lead(standing, unreachable)

    looking = threading.Thread(target=look_for_the_leader)
    with silent, Conversation(session.me.place, session._key, 5.0) as conversation:
        wish = {"ask": "survive", "member": last, "epoch": session.epoch}
        conversation.say({**wish, "lost": [], "leaves": False})
        looking.start()
        looking.join()
        assert unreachable == {first.uid}
        deadline = time.monotonic() + 5.0
        while not session._listener.arrivals("survive") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [each.member for each in session._listener.arrivals("survive")] == [last]
    session.close(is_over=False)
