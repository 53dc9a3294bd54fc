"""Clients that ask all the time, for tests of replicas.

    python replica_load.py ADDRESS COUNT

prints the number of answers again and again until SIGTERM; it fails if a request has failed. With a
path in place of COUNT, it prints what the server has there.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

LIMIT_SECONDS = 60.0
VALUES = [1.0, 2.0, 3.0, 4.0]


class Clients:
    """Clients in threads, each with one connection; every answer must be a multiple of the input.

    Args:
        address: Address of the server, host:port.
        count: Number of clients.
        pause: Seconds between an answer and the next request of a client.
    """

    def __init__(self, address: str, count: int, pause: float = 0.0) -> None:
        self.address, self.pause = address, pause
        self.factors: Counter[float] = Counter()
        self.failures: list[str] = []
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]

    @property
    def answered(self) -> int:
        """Number of answers so far."""
        with self._lock:
            assert not self.failures, self.failures
            return sum(self.factors.values())

    @contextlib.contextmanager
    def asking(self) -> Iterator[Clients]:
        """Ask while the context is open; no request may fail."""
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join()
        assert not self.failures, self.failures

    def _ask(self) -> None:
        try:
            with contextlib.closing(connect(self.address)) as connection:
                while not self._ended.is_set():
                    self._ask_once(connection)
                    self._ended.wait(self.pause)
        except (OSError, http.client.HTTPException, AssertionError, ValueError) as error:
            with self._lock:
                self.failures.append(repr(error))

    def _ask_once(self, connection: http.client.HTTPConnection) -> None:
        status, answer = infer(connection)
        assert status == 200, answer
        values = answer["outputs"][0]["data"]
        factor = values[0] / VALUES[0]
        assert values == [factor * value for value in VALUES]
        with self._lock:
            self.factors[factor] += 1


def connect(address: str) -> http.client.HTTPConnection:
    """Return a connection that waits long for an answer."""
    return http.client.HTTPConnection(address, timeout=LIMIT_SECONDS)


def infer(connection: http.client.HTTPConnection) -> tuple[int, Any]:
    """Return status and content of the answer to one request for the model m."""
    given = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": VALUES}
    connection.request("POST", "/v2/models/m/infer", json.dumps({"inputs": [given]}))
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def read(address: str, path: str) -> bytes:
    """Return the content at a path of a server."""
    with contextlib.closing(connect(address)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read()


def get(address: str, path: str) -> Any:
    """Return the JSON at a path of a server."""
    return json.loads(read(address, path))


def ready(address: str, generation: int = 0) -> list[str]:
    """Return the names of the replicas that are ready, of one generation or of all."""
    return [
        each["name"]
        for each in get(address, "/replicas")["replicas"]
        if each["state"] == "ready" and generation in (0, each["generation"])
    ]


def main(address: str, task: str) -> None:
    """Ask, or print the content at a path."""
    if task.startswith("/"):
        print(read(address, task).decode())
        return
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with Clients(address, int(task)).asking() as clients:
        while not ended.wait(0.1):
            print(clients.answered, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
