"""The clients of `slipstream bench serve`, in a process of their own.

    python -m slipstream.bench.serve.clients LOAD

LOAD is a `Load` as JSON; the program prints its result, a `ServeTurn` as JSON. A closed loop asks
again as soon as it has its answer, on each of its connections. An open loop asks at the
times of a random process, however slow the answers are, and counts each latency from the time at
which the request should have been sent.
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

WARM_SHARE = 0.2  # of a turn, before which nothing counts
MOST_CONNECTIONS = 512  # of an open loop
IDLE_SECONDS = 2.0  # after which a connection is left: servers close them after five and more
DRAIN_SECONDS = 2.0  # that the last answers of an open loop may take
SAMPLE_SECONDS = 0.25  # between looks at a server's memory
NOTHING = 0  # in place of a status: there was no answer

_SEED = 11
_LENGTH = b"content-length:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Load of one turn.

    Args:
        url: Address of the server; "" to call the package in this process.
        request: file with the bytes of a request; or the package.
        seconds: Seconds of the turn.
        clients: connections of a closed loop, 1 and more; 0: an open loop.
        rate: requests per second of an open loop.
        pid: Process id of the server whose memory is sampled; 0 for none.
        threads: Threads of a call in this process.
    """

    url: str
    request: str
    seconds: float
    clients: int = 0
    rate: float = 0.0
    pid: int = 0
    threads: int = 1

    def as_text(self) -> str:
        """Return the text that `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Load:
        """Return the load of a text that `as_text` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeTurn:
    """Result of one turn.

    Args:
        seconds: Seconds in which the counted requests were sent or, in a closed loop, answered.
        latencies: Seconds of each answer with a result.
        statuses: Number of answers by HTTP status; status 0 counts requests without an answer.
        lags: seconds by which requests of an open loop began too late, for which clients are to
            blame: there was no time or no connection.
        memory: Memory of the server in bytes, sampled from start to end.
    """

    seconds: float
    latencies: tuple[float, ...]
    statuses: dict[int, int]
    lags: tuple[float, ...] = ()
    memory: tuple[int, ...] = ()

    def as_text(self) -> str:
        """Return the text that `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> ServeTurn:
        """Return the turn of a text that `as_text` wrote."""
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
    """A connection that is kept.

    Args:
        reader: Reader of the connection.
        writer: Writer of the connection.
        used: Time of its last answer, from `time.perf_counter`.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used: float = 0.0

    @classmethod
    async def to(cls, url: str) -> Connection:
        """Open one."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def ask(self, request: bytes) -> int:
        """Return the status of the answer after all of it has arrived.

        Raises OSError or EOFError if the connection ends before.
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
        """Close it."""
        self.writer.close()


@dataclass(slots=True)
class Tally:
    """Counts during a turn."""

    latencies: list[float] = field(default_factory=list[float])
    statuses: Counter[int] = field(default_factory=Counter[int])
    lags: list[float] = field(default_factory=list[float])
    memory: list[int] = field(default_factory=list[int])

    def add(self, status: int, seconds: float) -> None:
        """Count an answer."""
        self.statuses[status] += 1
        if status == 200:
            self.latencies.append(seconds)

    def turn(self, seconds: float) -> ServeTurn:
        """Return the result of the turn.

        Args:
            seconds: Seconds that the counts cover.
        """
        return ServeTurn(
            seconds=seconds,
            latencies=tuple(round(each, 7) for each in self.latencies),
            statuses=dict(self.statuses),
            lags=tuple(round(each, 7) for each in self.lags),
            memory=tuple(self.memory),
        )


async def closed_loop(load: Load, request: bytes) -> ServeTurn:
    """Return the result of requests that follow each other on every connection.

    Raises OSError or EOFError if a connection ends.
    """
    tally = Tally()
    warm = time.perf_counter() + load.seconds * WARM_SHARE
    end = warm + load.seconds * (1 - WARM_SHARE)

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
    return tally.turn(load.seconds * (1 - WARM_SHARE))


class OpenLoop:
    """Requests at random times, which do not wait for earlier answers.

    Args:
        load: Load to put on a server.
        request: its bytes.
    """

    def __init__(self, load: Load, request: bytes) -> None:
        self._load, self._request = load, request
        self._tally = Tally()
        self._free: list[Connection] = []
        self._turnstile = asyncio.Semaphore(MOST_CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> ServeTurn:
        """Return the result; requests without an answer after some seconds count as unanswered."""
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
            # Timers count milliseconds: rather late than early, as lateness is counted.
            while (left := at - time.perf_counter()) > 0:
                await asyncio.sleep(max(left, 1e-3))
            task = loop.create_task(self._one(at))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _one(self, intended: float) -> None:
        status = NOTHING
        try:
            async with self._turnstile:
                self._tally.lags.append(time.perf_counter() - intended)
                status = await self._ask()
        except (OSError, EOFError):
            status = NOTHING
        finally:
            # Also of those that are cancelled.
            self._tally.add(status, time.perf_counter() - intended)

    async def _connection(self) -> Connection:
        """Return the connection that was used last, or a new one if that was long ago."""
        if self._free:
            found = self._free.pop()
            if time.perf_counter() - found.used < IDLE_SECONDS:
                return found
            found.close()
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
    """Return the result of consecutive calls in this process, made as a server makes them."""
    from slipstream.infer.run.session import load_executable

    loaded = load_executable(load.request, load.threads)
    inputs = loaded.package.check.inputs
    tally = Tally()
    warm = time.perf_counter() + load.seconds * WARM_SHARE
    end = warm + load.seconds * (1 - WARM_SHARE)
    while (begin := time.perf_counter()) < end:
        loaded.executable.run(inputs)
        if begin >= warm:
            tally.add(200, time.perf_counter() - begin)
    loaded.executable.close()
    return tally.turn(load.seconds * (1 - WARM_SHARE))


def memory_of(pid: int) -> int:
    """Return the bytes that a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def _watched(pid: int, found: list[int]) -> Generator[None]:
    """Sample a process's memory meanwhile; for process 0, do nothing."""

    async def watch() -> None:
        while True:
            found.append(memory_of(pid))
            await asyncio.sleep(SAMPLE_SECONDS)

    task = asyncio.get_running_loop().create_task(watch()) if pid else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


async def _asked(load: Load) -> ServeTurn:
    request = Path(load.request).read_bytes()
    return await (closed_loop(load, request) if load.clients else OpenLoop(load, request).run())


def main(text: str) -> None:
    """Put a load on a server, and print the result."""
    load = Load.from_text(text)
    if not load.url:
        print(calls(load).as_text())
        return
    import uvloop

    print(uvloop.run(_asked(load)).as_text())


if __name__ == "__main__":
    main(sys.argv[1])
