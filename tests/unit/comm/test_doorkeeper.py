"""A listening socket under a flood of strangers: who gets in, and what is looked at when."""

from __future__ import annotations

import os
import resource
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from slipstream.comm.auth import MAGIC
from slipstream.comm.door.doorkeeper import Arriving, Doorkeeper


class Entrance:
    """A doorkeeper with its selector, and the refusals so far."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.selector = selectors.DefaultSelector()
        server = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.place = server.getsockname()
        self.door = Doorkeeper(server, self.selector, lambda _, why: self.refused.append(why))
        self.stack = ExitStack()

    def dial(self, first: bytes = b"") -> None:
        connection = self.stack.enter_context(socket.create_connection(self.place))
        connection.sendall(first)

    def wait(self, seconds: float = 0.2) -> list[Arriving]:
        """Wait for events as a thread does, and return those that should be talked to."""
        has_news = bool(self.selector.select(self.door.patience(seconds)))
        arrived = self.door.arrivals(has_news)
        for connection, _ in arrived:
            self.stack.enter_context(connection)
        return arrived

    def flood(self) -> None:
        while not self.door.is_flooded:
            self.dial(b"GET / HTTP/1.1")
            self.wait()


@pytest.fixture
def entrance() -> Iterator[Entrance]:
    made = Entrance()
    yield made
    made.door.close()
    made.stack.close()
    made.selector.close()


def test_without_a_flood_everybody_is_talked_to_at_once(entrance: Entrance) -> None:
    entrance.dial()
    (arrived,) = entrance.wait(20)
    assert arrived[1].startswith("127.0.0.1:")


def test_during_a_flood_only_those_that_speak_the_protocol_are_talked_to(
    entrance: Entrance,
) -> None:
    entrance.flood()
    for _ in range(100):
        entrance.dial(b"\xff" * 100)
    entrance.dial(MAGIC + b"more")
    arrived: list[Arriving] = []
    while not arrived:
        assert entrance.door.is_flooded
        arrived = entrance.wait()
    assert len(arrived) == 1
    assert arrived[0][0].recv(8) == MAGIC  # looking at the bytes leaves them there
    assert set(entrance.refused) == {"it does not speak Slipstream's protocol"}


def test_a_flood_of_silence_is_bounded(entrance: Entrance) -> None:
    entrance.flood()
    for _ in range(100):
        entrance.dial()
    while "it had sent nothing when more connections came" not in entrance.refused:
        entrance.wait()
    assert len(entrance.door._silent) == 64


def test_a_flood_ends_with_the_strangers(entrance: Entrance) -> None:
    entrance.flood()
    entrance.dial(MAGIC[:3])  # slow, but perhaps honest
    deadline = time.monotonic() + 20
    arrived: list[Arriving] = []
    while entrance.door.is_flooded:
        assert time.monotonic() < deadline
        arrived += entrance.wait()
    assert len(arrived) == 1
    entrance.dial()
    assert len(entrance.wait(20)) == 1


def test_connections_that_prove_the_key_are_no_flood(entrance: Entrance) -> None:
    for _ in range(100):
        entrance.dial()
        assert len(entrance.wait(20)) == 1
        entrance.door.proved()
    assert not entrance.door.is_flooded


def test_without_files_connections_wait_and_the_thread_rests(
    entrance: Entrance, caplog: pytest.LogCaptureFixture
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = socket.socket()
    entrance.stack.enter_context(waiting)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        waiting.connect(entrance.place)
        assert entrance.wait(20) == []
        assert entrance.selector.get_map() == {}  # a connection that waits does not wake the thread
        for _ in range(5):
            assert entrance.wait() == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len([each for each in caplog.messages if "Too many open files" in each]) == 1
    deadline = time.monotonic() + 20
    arrived: list[Arriving] = []
    while not arrived:
        assert time.monotonic() < deadline
        arrived = entrance.wait()
    assert len(arrived) == 1
