"""When the agent of a host is due to act; what it does to processes is in tests/e2e/launch."""

import os
import time
from collections.abc import Iterator

import pytest

from slipstream.cluster.agent import Agent
from slipstream.cluster.messages import End, Kill


@pytest.fixture
def agent() -> Iterator[Agent]:
    """An agent without ranks, whose launcher says nothing."""
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
    agent: Agent, order: object
) -> None:
    assert not agent._is_done()
    agent._obey(order)
    assert agent._is_done()
