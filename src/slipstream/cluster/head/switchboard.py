"""The switchboard of a head: host daemons connect to it, and it connects the launcher to agents.

It runs in a thread of its own. The launcher, in the main thread, sees pipes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from slipstream.cluster.head.wire import (
    MAX_LINE,
    SILENCE_SECONDS,
    encode_line,
    pump,
    read_line,
    send_alive,
)
from slipstream.cluster.launch.hosts import Host
from slipstream.cluster.launch.job import Job
from slipstream.errors import ConfigError

END_SECONDS = 2.0  # time for the host daemons to hang up
LOST_CODE = 255  # like that of ssh: the connection failed, and not the agent


class HostListener(Protocol):
    """The interface of a function that is told when hosts come and go."""

    def __call__(self, name: str, *, is_there: bool) -> None:
        """Receive the name of a host, and whether it is there now."""


@dataclass(frozen=True, slots=True)
class TakenHost:
    """A host, and the time in seconds since 1970 at which the cloud takes it away."""

    host: Host
    at: float


@dataclass(slots=True)
class _Daemon:
    """A host daemon that is connected, and the time at which the cloud takes its host away."""

    host: Host
    writer: asyncio.StreamWriter
    since: float
    taken_at: float | None = None
    is_told_gone: bool = False


class Switchboard:
    """The hosts of a run that are there, and connections to agents on them.

    Args:
        port: Port on which it listens.
        tls: Settings of TLS.
        changed: Function that is called from a thread when a host has come or gone.

    Raises:
        ConfigError: nothing can listen on the port.
    """

    def __init__(self, port: int, tls: ssl.SSLContext, changed: HostListener) -> None:
        self._port = port
        self._tell = changed
        self._tls = tls
        self._daemons: dict[str, _Daemon] = {}
        self._waiting: dict[int, RemoteAgent] = {}
        self._agents: dict[str, set[RemoteAgent]] = {}
        self._numbers = itertools.count(1)
        self._is_ending = False
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="switchboard")
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        except OSError as error:
            self._stop()
            raise ConfigError(
                f"the head cannot listen on port {port}: {error.strerror}; end what uses it, or"
                " choose another head_port"
            ) from error

    # ---- what the main thread calls ----

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Hosts whose daemons are connected and that stay, in the order in which they came."""
        with self._changed:
            daemons = sorted(self._daemons.values(), key=lambda daemon: daemon.since)
            return tuple(daemon.host for daemon in daemons if daemon.taken_at is None)

    @property
    def taken(self) -> tuple[TakenHost, ...]:
        """Hosts that the cloud takes away soon."""
        with self._changed:
            return tuple(
                TakenHost(daemon.host, daemon.taken_at)
                for daemon in self._daemons.values()
                if daemon.taken_at is not None
            )

    def wait_for_change(self, seconds: float) -> None:
        """Wait until a host has come or gone, at most for `seconds`."""
        with self._changed:
            self._changed.wait(max(seconds, 0.0))

    def connect(self, _job: Job, host: Host, _terminal: Sequence[int] = ()) -> RemoteAgent:
        """Return a connection to a new agent on a host; it ends at once if the host is gone."""
        agent = RemoteAgent(self._loop, host.name)
        self._loop.call_soon_threadsafe(self._ask_for_agent, host.name, agent)
        return agent

    def close(self, *, is_over: bool = True) -> None:
        """Tell all host daemons that the job is over, and stop listening; blocks for seconds.

        Args:
            is_over: Whether the job is over (default True); if not, the host daemons look for
                another head.
        """
        asyncio.run_coroutine_threadsafe(self._end(is_over), self._loop).result()
        self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ---- the thread of the switchboard ----

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, None, self._port, ssl=self._tls, limit=MAX_LINE
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # the job is over
            await self._serve_kind(reader, writer)
        writer.close()

    async def _serve_kind(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await read_line(reader, SILENCE_SECONDS)
        if first is not None and "agent" in first:
            agent = self._waiting.pop(first["agent"], None)
            if agent is not None:
                await agent.serve(reader, writer)
                self._forget(agent)
        elif first is not None and "host" in first:
            await self._keep(first, reader, writer)

    async def _keep(
        self, first: dict[str, object], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Keep a host in the list as long as its daemon gives signs of life."""
        address = str(writer.get_extra_info("peername")[0])
        name, slots = str(first["host"]), int(str(first["slots"]))
        host = Host(name=name, slots=slots, login=name, address=address)
        daemon = _Daemon(host, writer, time.monotonic())
        earlier = self._daemons.get(name)
        if earlier is not None:
            earlier.writer.close()
        self._put(name, daemon)
        signs = asyncio.create_task(send_alive(writer))
        while (message := await read_line(reader, SILENCE_SECONDS)) is not None:
            agent = self._waiting.pop(message.get("failed", 0), None)
            if agent is not None:
                agent.fail(str(message["reason"]))
                self._forget(agent)
            if "taken_at" in message:
                self._take(name, daemon, float(message["taken_at"]))
        signs.cancel()
        if self._daemons.get(name) is daemon:
            self._put(name, None)
            for agent in self._agents.pop(name, set()):
                agent.cut()

    def _put(self, name: str, daemon: _Daemon | None) -> None:
        with self._changed:
            earlier = self._daemons.pop(name, None)
            if daemon is not None:
                self._daemons[name] = daemon
            self._changed.notify_all()
        is_known = daemon is None and earlier is not None and earlier.is_told_gone
        if not self._is_ending and not is_known:
            self._tell(name, is_there=daemon is not None)

    def _take(self, name: str, daemon: _Daemon, at: float) -> None:
        """Take a host out of the list, because the cloud takes it away soon."""
        with self._changed:
            daemon.taken_at = at
            self._changed.notify_all()
        self._tell_if_free(name)

    def _forget(self, agent: RemoteAgent) -> None:
        self._agents.get(agent.host, set()).discard(agent)
        self._tell_if_free(agent.host)

    def _tell_if_free(self, name: str) -> None:
        """Tell that a host that is taken away has gone as soon as nothing runs there any more."""
        daemon = self._daemons.get(name)
        if daemon is None or daemon.taken_at is None or daemon.is_told_gone:
            return
        if not self._agents.get(name):
            daemon.is_told_gone = True
            self._tell(name, is_there=False)

    def _ask_for_agent(self, name: str, agent: RemoteAgent) -> None:
        daemon = self._daemons.get(name)
        if daemon is None:
            agent.fail(f"{name} is not connected")
            return
        number = next(self._numbers)
        self._waiting[number] = agent
        self._agents.setdefault(name, set()).add(agent)
        daemon.writer.write(encode_line(agent=number))

    async def _end(self, is_over: bool) -> None:
        """Tell all host daemons whether the job is over, and wait until they hang up.

        A connection that is closed while it has unread data is reset, and the peer may lose what it
        has not read yet; so the daemons close the connections.
        """
        self._is_ending = True
        if self._server is not None:
            self._server.close()
        for daemon in self._daemons.values():
            if is_over:
                daemon.writer.write(encode_line(end=True))
            else:
                daemon.writer.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=END_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


class RemoteAgent:
    """The connection to an agent that a host daemon starts; the launcher uses it like a process.

    Args:
        loop: Event loop of the switchboard.
        host: Name of the host.

    Attributes:
        host: Name of the host.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str) -> None:
        self.host = host
        self._loop = loop
        self._orders, self.orders = os.pipe()
        self.reports, self._reports = os.pipe()
        self.errors, self._errors = os.pipe()
        self._task: asyncio.Task[None] | None = None
        self._has_ended = threading.Event()
        self._is_closed = False

    # ---- what the launcher calls ----

    def end(self, grace_seconds: float) -> int:
        """Close the orders and wait for the end of the connection; return the code of a loss."""
        self._close_orders()
        if not self._has_ended.wait(grace_seconds + 5.0):
            self.kill()
            self._has_ended.wait()
        return LOST_CODE

    def close(self) -> None:
        """Close the descriptors of the launcher."""
        self._close_orders()
        os.close(self.reports)
        os.close(self.errors)

    def kill(self) -> None:
        """Cut the connection."""
        self._loop.call_soon_threadsafe(self.cut)

    def _close_orders(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            os.close(self.orders)

    # ---- the thread of the switchboard ----

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy orders and reports until one side ends."""
        self._task = asyncio.current_task()
        try:
            orders, reports = await self._open_pipes()
            sending = asyncio.create_task(pump(orders, writer))
            await pump(reader, reports)
            sending.cancel()
        except asyncio.CancelledError:
            pass
        finally:
            self._finish()

    async def _open_pipes(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        await self._loop.connect_read_pipe(lambda: protocol, os.fdopen(self._orders, "rb", 0))
        transport, flow = await self._loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(self._reports, "wb", 0)
        )
        self._orders = self._reports = -1
        return reader, asyncio.StreamWriter(transport, flow, None, self._loop)

    def fail(self, reason: str) -> None:
        """End before any agent has started, unless the launcher has given it up already."""
        if not self._has_ended.is_set():
            os.write(self._errors, reason.encode())
            self._finish()

    def cut(self) -> None:
        """End the connection, or the wait for it."""
        if self._task is not None:
            self._task.cancel()
        else:
            self._finish()

    def _finish(self) -> None:
        for descriptor in (self._orders, self._reports, self._errors):
            if descriptor >= 0:
                os.close(descriptor)
        self._orders = self._reports = self._errors = -1
        self._has_ended.set()
