"""A stranger who attacks ports of a job for a while: `stranger.py PLAN`, a file of JSON.

The plan has the ports, messages, connections a second, seconds, and the number of half-open
connections for each port. The stranger opens connections at this rate, sends one of the messages on
each, and closes it after an answer or a moment. It prints the number of connections, and the
largest number of bytes that any of them was answered.
"""

import contextlib
import json
import random
import selectors
import socket
import sys
import time
from pathlib import Path

PATIENCE = 0.3  # seconds for an answer
DRIP = 1.0  # seconds between two bytes on a half-open connection


class Stranger:
    """All connections of the stranger."""

    def __init__(self, plan: dict) -> None:
        self.plan = plan
        self.messages = [
            {key: bytes.fromhex(piece) for key, piece in message.items()}
            for message in plan["messages"]
        ]
        self.random = random.Random(plan["seed"])
        self.selector = selectors.DefaultSelector()
        self.open: dict[socket.socket, tuple[float, dict[str, bytes]]] = {}
        self.answered: dict[socket.socket, int] = {}
        self.slow: list[tuple[socket.socket, bytes, int]] = []
        self.count = self.slow_count = self.most_answered = self.failed = 0

    def attack(self) -> None:
        begin = time.monotonic()
        drip_at = begin
        while (now := time.monotonic()) < begin + self.plan["seconds"]:
            due = int((now - begin) * self.plan["rate"])
            for _ in range(min(20, due - self.count)):
                self.dial()
            if now >= drip_at:
                drip_at = now + DRIP
                self.drip()
            for key, events in self.selector.select(0.002):
                self.go_on(key.fileobj, events)
            for connection in [each for each, (end, _) in self.open.items() if end < now]:
                self.close(connection)
        for connection in [*self.open, *(each for each, _, _ in self.slow)]:
            connection.close()

    def dial(self) -> None:
        self.count += 1
        connection = self.dialled(self.random.choice(self.plan["ports"]))
        self.open[connection] = (time.monotonic() + PATIENCE, self.random.choice(self.messages))
        self.selector.register(connection, selectors.EVENT_WRITE)

    @staticmethod
    def dialled(place: list) -> socket.socket:
        """Return a connection that is being made."""
        host, port = place
        connection = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        connection.setblocking(False)
        # A reset leaves nothing behind in this machine's kernel, so ports do not run out.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.connect_ex((host, port))
        return connection

    def go_on(self, connection: socket.socket, events: int) -> None:
        _, message = self.open[connection]
        try:
            if events & selectors.EVENT_WRITE:
                connection.send(message["first"])
                self.selector.modify(connection, selectors.EVENT_READ)
                return
            piece = connection.recv(4096)
        except OSError:
            self.failed += 1
            return self.close(connection)
        if not piece:
            return self.close(connection)
        answered = self.answered.get(connection, 0)
        self.answered[connection] = answered + len(piece)
        self.most_answered = max(self.most_answered, answered + len(piece))
        if not answered and "then" in message:
            with contextlib.suppress(OSError):
                connection.send(message["then"])

    def close(self, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        del self.open[connection]
        self.answered.pop(connection, None)
        connection.close()

    def drip(self) -> None:
        """Send one more byte on each half-open connection, and open those that are missing."""
        left = []
        for connection, message, sent in self.slow:
            try:
                connection.send(message[sent % len(message) :][:1])
                left.append((connection, message, sent + 1))
            except OSError:
                connection.close()
        self.slow = left
        wanted = self.plan["slow"] * len(self.plan["ports"])
        for number in range(wanted - len(left)):
            connection = self.dialled(self.plan["ports"][number % len(self.plan["ports"])])
            self.slow_count += 1
            message = self.random.choice(self.messages)["first"] or b"?"
            self.slow.append((connection, message, 0))


def main() -> None:
    stranger = Stranger(json.loads(Path(sys.argv[1]).read_text()))
    stranger.attack()
    count = stranger.count + stranger.slow_count
    print(json.dumps({"count": count, "most_answered": stranger.most_answered}))


if __name__ == "__main__":
    main()
