"""When the agent of a host is due to act; what it does to processes is in tests/e2e/launch."""

import os
import random
import socket
import time
from collections.abc import Iterator

import pytest

from slipstream.cluster.launch.agent import Agent
from slipstream.cluster.launch.messages import (
    End,
    Exited,
    Kill,
    NotStarted,
    Refused,
    Start,
    StartSlot,
    decode,
    encode,
)
from slipstream.cluster.launch.ports import find_free_port_pair
from slipstream.errors import InternalError


@pytest.fixture
def agent() -> Iterator[Agent]:
    """Yield an agent without ranks, whose launcher sends nothing."""
    pipe = os.pipe()
    yield Agent(*pipe)
    for descriptor in pipe:
        os.close(descriptor)


def test_nothing_is_due_before_an_order(agent: Agent) -> None:
    assert agent._seconds_to_deadline() is None


def test_a_kill_is_due_at_once_also_if_it_is_late(agent: Agent) -> None:
    agent._obey(Kill())
    assert agent._seconds_to_deadline() == 0.0


def test_the_end_leaves_ranks_their_grace(agent: Agent) -> None:
    agent._grace_seconds = 1000.0
    before = time.monotonic()
    agent._end()
    left = agent._seconds_to_deadline()
    assert left is not None
    assert 1000.0 - (time.monotonic() - before) <= left <= 1000.0


@pytest.mark.parametrize("order", [End(), Kill()])
def test_an_agent_that_is_ended_before_it_started_ranks_is_done(
    agent: Agent, order: End | Kill
) -> None:
    assert not agent._is_done()
    agent._obey(order)
    assert agent._is_done()


@pytest.mark.parametrize("order", [Exited(local_rank=0, status=0), None])
def test_what_is_no_order_is_a_bug(agent: Agent, order: Exited | None) -> None:
    with pytest.raises(InternalError, match="which is no order"):
        agent._obey(order)


def test_a_second_end_gives_no_new_grace(agent: Agent) -> None:
    agent._obey(Kill())
    agent._grace_seconds = 1000.0
    agent._obey(End())
    assert agent._seconds_to_deadline() == 0.0


def test_orders_are_read_in_pieces_and_several_at_a_time() -> None:
    orders, launcher = os.pipe()
    agent = Agent(orders, launcher)
    os.write(launcher, encode(End())[:5])
    agent._read_orders()
    assert not agent._is_done()
    os.write(launcher, encode(End())[5:] + encode(Kill()))
    agent._read_orders()
    assert agent._is_done()
    os.close(launcher)
    os.close(orders)


@pytest.mark.parametrize(
    ("argv", "environ"),
    [
        (("a\0b",), {}),
        (("true", "\ud800"), {}),
        (("true",), {"A": "x\0y"}),
        (("true",), {"A": "\ud800"}),
        (("true",), {"A=B": "x"}),
    ],
)
@pytest.mark.parametrize("is_slot", [False, True])
def test_a_text_that_the_system_refuses_is_reported(
    argv: tuple[str, ...], environ: dict[str, str], is_slot: bool
) -> None:
    reports, written = os.pipe()
    agent = Agent(reports, written)
    slot = StartSlot(local_rank=0, argv=argv, cwd="/", environ=environ, unset=(), grace_seconds=1.0)
    start = Start(argv=argv, cwd="/", environ=environ, ranks=({},), grace_seconds=1.0, terminal=())
    agent._obey(slot if is_slot else start)
    answer = decode(os.read(reports, 65536).splitlines()[0])
    assert isinstance(answer, NotStarted if is_slot else Refused)
    assert answer.reason.startswith(f"cannot run {argv[0]!r} in '/': ")
    assert agent._is_done() is not is_slot
    os.close(reports)
    os.close(written)


@pytest.mark.parametrize("taken", [0, 1])
def test_a_port_is_free_together_with_the_next_one(taken: int) -> None:
    random.seed(taken)
    first = find_free_port_pair()
    assert 20000 <= first < 30000
    assert first % 2 == 0
    random.seed(taken)
    with socket.socket() as other:
        other.bind(("", first + taken))
        second = find_free_port_pair()
    assert second != first
    assert 20000 <= second < 30000


def test_a_port_that_was_given_is_not_given_again() -> None:
    random.seed(3)
    first = find_free_port_pair()
    random.seed(3)
    assert find_free_port_pair([first]) != first
