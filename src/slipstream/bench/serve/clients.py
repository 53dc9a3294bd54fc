"""Clients of `slipstream bench serve`, which run in a separate process.

    python -m slipstream.bench.serve.clients LOAD

LOAD is JSON text from `Load.as_text`. The program prints JSON text from `ServeTurn.as_text`. In a
closed loop, every connection sends its next request when the previous answer has arrived. An open
loop sends requests at random times, independent of the answers. An open loop measures each latency
from the time at which the request should have been sent.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

WARM_UP_SHARE = 0.2  # share of a turn, at its beginning, that is not measured
MOST_CONNECTIONS = 512  # highest number of connections of an open loop
# seconds without a request, after which a connection is not reused; servers close it after 5 s
IDLE_SECONDS = 2.0
DRAIN_SECONDS = 2.0  # time limit in seconds for the last answers of an open loop
SAMPLE_SECONDS = 0.25  # seconds between two samples of a server's memory
NO_ANSWER = 0  # stands for the HTTP status if a request gets no answer

_SEED = 11
_LENGTH = b"content-length:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Load that the clients put on a server in one turn.

    Args:
        url: Address of the server; "" to run the compiled model in this process instead.
        request: Path of a file with the bytes of a request; if `url` is "", path of the compiled
            model.
        seconds: Length of the turn in seconds.
        clients: Number of connections of a closed loop; 0 for an open loop (default 0).
        rate: Mean number of requests per second of an open loop.
        pid: Process id of the server whose memory is sampled; 0 for no samples (default 0).
        threads: Number of threads with which the model runs in this process (default 1).
    """

    url: str
    request: str
    seconds: float
    clients: int = 0
    rate: float = 0.0
    pid: int = 0
    threads: int = 1

    def as_text(self) -> str:
        """Return the fields as JSON text, which `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Load:
        """Return the load from the JSON text of `as_text`."""
        return cls(**json.loads(text))


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeTurn:
    """Result of one turn.

    Args:
        seconds: Length of the measured part of the turn in seconds.
        latencies: Seconds from each request to its answer, only for answers with status 200.
        statuses: Number of answers by HTTP status; the key 0 counts requests without an answer.
        lags: Seconds by which each request of an open loop was sent too late, because the clients
            lacked processor time or a free connection.
        memory: Resident memory of the server in bytes, sampled during the turn.
    """

    seconds: float
    latencies: tuple[float, ...]
    statuses: dict[int, int]
    lags: tuple[float, ...] = ()
    memory: tuple[int, ...] = ()

    def as_text(self) -> str:
        """Return the fields as JSON text, which `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> ServeTurn:
        """Return the turn from the JSON text of `as_text`."""
        fields: dict[str, Any] = json.loads(text)
        return cls(
            seconds=fields["seconds"],
            latencies=tuple(fields["latencies"]),
            statuses={int(status): count for status, count in fields["statuses"].items()},
            lags=tuple(fields["lags"]),
            memory=tuple(fields["memory"]),
        )


@dataclass(slots=True)
class Connection:
    """A persistent connection to a server.

    Args:
        reader: Stream of the bytes that the server sends.
        writer: Stream of the bytes that the server receives.
        used: Time of the last answer, from `time.perf_counter`.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used: float = 0.0

    @classmethod
    async def to(cls, url: str) -> Connection:
        """Open a connection to the server at an address."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def ask(self, request: bytes) -> int:
        """Send a request, wait for the complete answer, and return its HTTP status.

        Raises:
            OSError: the connection broke.
            EOFError: the connection ended before the answer.
        """
        self.writer.write(request)
        await self.writer.drain()
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        length = next(line for line in lines if line.lower().startswith(_LENGTH))
        await self.reader.readexactly(int(length[len(_LENGTH) :]))
        self.used = time.perf_counter()
        return int(lines[0].split(b" ", 2)[1])

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


@dataclass(slots=True)
class Tally:
    """Latencies, statuses and other measurements that are collected during a turn."""

    latencies: list[float] = field(default_factory=list[float])
    statuses: Counter[int] = field(default_factory=Counter[int])
    lags: list[float] = field(default_factory=list[float])
    memory: list[int] = field(default_factory=list[int])

    def add(self, status: int, seconds: float) -> None:
        """Record an answer with its HTTP status and its latency in seconds."""
        self.statuses[status] += 1
        if status == 200:
            self.latencies.append(seconds)

    def turn(self, seconds: float) -> ServeTurn:
        """Return the collected measurements as the result of the turn.

        Args:
            seconds: Length of the measured part of the turn in seconds.
        """
        return ServeTurn(
            seconds=seconds,
            latencies=tuple(round(latency, 7) for latency in self.latencies),
            statuses=dict(self.statuses),
            lags=tuple(round(lag, 7) for lag in self.lags),
            memory=tuple(self.memory),
        )


async def closed_loop(load: Load, request: bytes) -> ServeTurn:
    """Run a closed loop for one turn, and return its result.

    Raises:
        OSError: a connection broke.
        EOFError: a connection ended before an answer.
    """
    tally = Tally()
    warm = time.perf_counter() + load.seconds * WARM_UP_SHARE
    end = warm + load.seconds * (1 - WARM_UP_SHARE)

    async def client() -> None:
        connection = await Connection.to(load.url)
        try:
            while (begin := time.perf_counter()) < end:
                status = await connection.ask(request)
                now = time.perf_counter()
                if warm <= now < end:
                    tally.add(status, now - begin)
        finally:
            connection.close()

    await asyncio.gather(*(client() for _ in range(load.clients)))
    return tally.turn(load.seconds * (1 - WARM_UP_SHARE))


class OpenLoop:
    """Requests that are sent at random times, without waiting for earlier answers.

    Args:
        load: Load on the server.
        request: Bytes of a request.
    """

    def __init__(self, load: Load, request: bytes) -> None:
        self._load, self._request = load, request
        self._tally = Tally()
        self._free: list[Connection] = []
        self._connections = asyncio.Semaphore(MOST_CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> ServeTurn:
        """Run the loop for one turn; return its result, in which very late answers are missing."""
        with _watched(self._load.pid, self._tally.memory):
            await self._send_all()
            if self._tasks:
                await asyncio.wait(set(self._tasks), timeout=DRAIN_SECONDS)
        late = list(self._tasks)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for connection in self._free:
            connection.close()
        return self._tally.turn(self._load.seconds)

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        draw = random.Random(_SEED)
        at = time.perf_counter()
        end = at + self._load.seconds
        while (at := at + draw.expovariate(self._load.rate)) < end:
            # Timers have a resolution of 1 ms. A request is sent late rather than early, because
            # lags are recorded.
            while (remaining := at - time.perf_counter()) > 0:
                await asyncio.sleep(max(remaining, 1e-3))
            task = loop.create_task(self._send(at))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, intended: float) -> None:
        status = NO_ANSWER
        try:
            async with self._connections:
                self._tally.lags.append(time.perf_counter() - intended)
                status = await self._ask()
        except (OSError, EOFError):
            status = NO_ANSWER
        finally:  # also for cancelled requests
            self._tally.add(status, time.perf_counter() - intended)

    async def _connection(self) -> Connection:
        """Return the last used connection, or a new one if that connection was idle too long."""
        if self._free:
            connection = self._free.pop()
            if time.perf_counter() - connection.used < IDLE_SECONDS:
                return connection
            connection.close()
        return await Connection.to(self._load.url)

    async def _ask(self) -> int:
        connection = await self._connection()
        try:
            status = await connection.ask(self._request)
        except BaseException:
            connection.close()
            raise
        self._free.append(connection)
        return status


def calls(load: Load) -> ServeTurn:
    """Run the compiled model repeatedly in this process, and return the latencies of these runs."""
    from slipstream.infer.run.session import load_executable

    loaded = load_executable(load.request, load.threads)
    inputs = loaded.package.check.inputs
    tally = Tally()
    warm = time.perf_counter() + load.seconds * WARM_UP_SHARE
    end = warm + load.seconds * (1 - WARM_UP_SHARE)
    while (begin := time.perf_counter()) < end:
        loaded.executable.run(inputs)
        if begin >= warm:
            tally.add(200, time.perf_counter() - begin)
    loaded.executable.close()
    return tally.turn(load.seconds * (1 - WARM_UP_SHARE))


def memory_of(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def _watched(pid: int, samples: list[int]) -> Generator[None]:
    """Sample the memory of a process inside the `with` block; do nothing if `pid` is 0."""

    async def watch() -> None:
        while True:
            samples.append(memory_of(pid))
            await asyncio.sleep(SAMPLE_SECONDS)

    task = asyncio.get_running_loop().create_task(watch()) if pid else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


async def _run(load: Load) -> ServeTurn:
    request = Path(load.request).read_bytes()
    return await (closed_loop(load, request) if load.clients else OpenLoop(load, request).run())


def main(text: str) -> None:
    """Run the load that `text` describes, and print the result."""
    load = Load.from_text(text)
    if not load.url:
        print(calls(load).as_text())
        return
    import uvloop

    print(uvloop.run(_run(load)).as_text())


if __name__ == "__main__":
    main(sys.argv[1])
