"""The bytes between two hosts, recorded by a relay through which one rank connects to the other."""

import contextlib
import os
import secrets
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.multiprocess

PROGRAM = Path(__file__).parent / "ranks" / "wire.py"
LIMIT_SECONDS = 120.0
REPEATS = 4  # times that a number must stand in a row, so that it is not found by chance


class RecordingRelay:
    """Passes connections on to another address and records their bytes of both directions."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target: tuple[str, int] | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._open: list[socket.socket] = []
        self.recorded: dict[socket.socket, bytearray] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """Address to which ranks connect."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def _run(self) -> None:
        while not self._over.is_set():
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self._listener:
                    self._admit()
                else:
                    self._move(key.fileobj, key.data)

    def _admit(self) -> None:
        assert self.target is not None
        one = self._listener.accept()[0]
        other = socket.create_connection(self.target)
        for source, sink in ((one, other), (other, one)):
            self._open.append(source)
            self.recorded[source] = bytearray()
            self._selector.register(source, selectors.EVENT_READ, sink)

    def _move(self, source: "socket.socket | object", sink: socket.socket) -> None:
        assert isinstance(source, socket.socket)
        try:
            received = source.recv(1 << 18)
            self.recorded[source] += received
            sink.sendall(received)
        except ConnectionError:  # a rank has closed with bytes that it had not read
            received = b""
        if not received:
            self._selector.unregister(source)
            with contextlib.suppress(OSError):  # the other end may have closed as well
                sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close all connections."""
        self._over.set()
        self._thread.join()
        for each in (self._listener, *self._open):
            each.close()


@pytest.fixture
def relay() -> Iterator[RecordingRelay]:
    made = RecordingRelay()
    yield made
    made.close()


def start(rank: int, base: int, tls: bool, key: str) -> "subprocess.Popen[str]":
    environ = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "SLIPSTREAM_JOB_KEY": key,
        "SLIPSTREAM_HOST_ID": f"host {rank}",
        "SLIPSTREAM_TLS": str(int(tls)),
    }
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), f"{base:x}"],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def say(rank: "subprocess.Popen[str]", text: str) -> None:
    assert rank.stdin is not None
    rank.stdin.write(text + "\n")
    rank.stdin.flush()


def hear(rank: "subprocess.Popen[str]") -> str:
    assert rank.stdout is not None
    return rank.stdout.readline().strip()


def reduce_over(relay: RecordingRelay, base: int, tls: bool, key: str) -> None:
    """Let two ranks sum a gradient of `base` and of `base + 1`, connected by the relay."""
    ranks = [start(rank, base, tls, key) for rank in range(2)]
    try:
        addresses = [hear(rank) for rank in ranks]
        *rest, endpoint = bytes.fromhex(addresses[0]).decode().split("\n")
        host, port = endpoint.rsplit(":", 1)
        relay.target = (host, int(port))
        relayed = "\n".join([*rest, relay.endpoint]).encode().hex()
        say(ranks[0], " ".join(addresses))
        say(ranks[1], f"{relayed} {addresses[1]}")
        assert [hear(rank) for rank in ranks] == [f"sum {2 * base + 1} {2 * base + 1}"] * 2
        for rank in ranks:
            say(rank, "over")
        assert [rank.wait(LIMIT_SECONDS) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.parametrize("tls", [False, True])
def test_gradients_are_readable_on_the_wire_unless_tls_is_on(
    relay: RecordingRelay, tls: bool
) -> None:
    base = secrets.randbits(60)
    key = secrets.token_hex(16)
    reduce_over(relay, base, tls, key)
    wire = list(relay.recorded.values())
    assert sum(map(len, wire)) > 8_000_000, "the gradient did not pass the relay"
    numbers = {"rank 0's": base, "rank 1's": base + 1, "the sum": 2 * base + 1}
    readable = {
        name
        for name, number in numbers.items()
        if any(number.to_bytes(8, "little") * REPEATS in stream for stream in wire)
    }
    assert readable == (set() if tls else set(numbers))
    assert all(key.encode() not in stream for stream in wire)
