"""Starters of replicas: the interface, and processes of this host."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from slipstream.cluster.engines.ssh_host import SSH_FAILED
from slipstream.cluster.outside import outside
from slipstream.errors import PeerError, UsageError
from slipstream.serve.gateway.generations import Generation
from slipstream.serve.gateway.replica import END, LEASE_SECONDS, ReplicaOrder
from slipstream.serve.gateway.upstream import ReplicaAddress

_LOG = logging.getLogger(__name__)
PROGRAM = "slipstream.serve.gateway.replica"
_NUM_LAST_LINES = 3
END_SECONDS = 15.0  # time in seconds that replicas get when the gateway ends


class ReplicaStarter(Protocol):
    """The interface of what starts replicas somewhere."""

    async def start(self, name: str, generation: Generation) -> ReplicaAddress:
        """Start a replica, and return its address once it answers requests.

        Args:
            name: Name of the replica, which no other one has had.
            generation: Model files that it serves.

        Raises:
            SlipstreamError: the replica does not start; the message says why.
        """
        ...

    async def stop(self, name: str, seconds: float) -> None:
        """End a replica; return when it has ended, or nothing if there is none of this name.

        Args:
            name: Name of the replica.
            seconds: Time in seconds that it gets for its open requests.
        """
        ...

    async def lose(self, name: str) -> None:
        """End a replica that has failed, and avoid its host for a while."""
        ...

    def list(self) -> Mapping[str, str]:
        """Return the host of each replica whose process runs, by the replica's name."""
        ...

    async def close(self) -> None:
        """End all replicas, and remove what the starter has left on hosts."""
        ...


class ReplicaProcess:
    """The process of a replica, or the ssh that leads to it, with the lease that keeps it alive.

    Args:
        name: Name of the replica.
        host: Name of its host.
        process: Process with pipes.
    """

    def __init__(self, name: str, host: str, process: asyncio.subprocess.Process) -> None:
        self.name, self.host, self._process = name, host, process
        self._last: collections.deque[str] = collections.deque(maxlen=_NUM_LAST_LINES)
        self._tasks = [asyncio.create_task(self._log()), asyncio.create_task(self._renew())]

    @classmethod
    async def start(
        cls, argv: Sequence[str], order: ReplicaOrder, name: str, host: str
    ) -> ReplicaProcess:
        """Start a process group that gets an order.

        Args:
            argv: Command line.
            order: Order that the replica gets.
            name: Name of the replica.
            host: Name of its host.
        """
        pipe = asyncio.subprocess.PIPE
        with outside(f"starting {name} on {host or 'this host'}"):
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        started = cls(name, host, process)
        started._write(order.as_text())
        return started

    @property
    def is_running(self) -> bool:
        """True until the process has ended."""
        return self._process.returncode is None

    async def announced(self, order: ReplicaOrder) -> ReplicaAddress:
        """Return the address that the replica prints when it is ready.

        Args:
            order: Order that the replica got.

        Raises:
            UsageError: the replica cannot serve the models.
            PeerError: it ended without a word, or its host cannot be reached.
        """
        assert self._process.stdout is not None
        # A shell of the host may greet first.
        while line := await self._process.stdout.readline():
            if line.startswith(b"{"):
                said: dict[str, Any] = json.loads(line)
                if "error" in said:
                    raise UsageError(said["error"])
                return ReplicaAddress(
                    said["host"], said["port"], order.token, order.certificate, said["grpc_port"]
                )
        code = await self._process.wait()
        await asyncio.wait(self._tasks[:1])
        words = "; ".join(self._last) or "no message"
        problem = "cannot be reached by ssh" if code == SSH_FAILED else f"ended with code {code}"
        where = f" on {self.host}" if self.host else ""
        raise PeerError(f"{self.name}{where} {problem}: {words}")

    async def stop(self, seconds: float) -> None:
        """End the lease; kill the process group if it is still there after some seconds."""
        assert self._process.stdin is not None
        self._write(END.decode())
        self._process.stdin.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._process.wait(), max(seconds, 0.01))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        for task in self._tasks:
            task.cancel()

    async def _renew(self) -> None:
        while self.is_running:
            await asyncio.sleep(LEASE_SECONDS)
            self._write("")

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(f"{line}\n".encode())

    async def _log(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            text = line.decode(errors="replace").rstrip()
            self._last.append(text)
            _LOG.info("%s: %s", self.name, text)


class LocalStarter:
    """A starter of replicas on this host; each has a process, and its own device if there are some.

    Args:
        python: Path of Python.
        options: Further fields of `ServeOptions` of each replica.
        devices: Devices, of which each replica gets the one that the fewest use.
        has_grpc: Whether the replicas serve gRPC too (default False).
    """

    def __init__(
        self,
        python: str,
        options: Mapping[str, Any],
        devices: Sequence[str] = ("auto",),
        *,
        has_grpc: bool = False,
    ) -> None:
        self._python, self._options, self._devices = python, options, tuple(devices)
        self._has_grpc = has_grpc
        self._processes: dict[str, ReplicaProcess] = {}
        self._device_of: dict[str, str] = {}

    async def start(self, name: str, generation: Generation) -> ReplicaAddress:
        """Start a replica; see `ReplicaStarter.start`."""
        used = collections.Counter(self._device_of[each] for each in self.list())
        self._device_of[name] = device = min(self._devices, key=lambda each: used[each])
        options = {**self._options, "devices": [device]}
        order = ReplicaOrder(
            models=models_of(generation),
            token=secrets.token_hex(),
            has_grpc=self._has_grpc,
            copies=str(generation.folder.parent),
            options=options,
        )
        process = await ReplicaProcess.start([self._python, "-m", PROGRAM], order, name, "")
        self._processes[name] = process
        return await process.announced(order)

    async def stop(self, name: str, seconds: float) -> None:
        """End a replica; see `ReplicaStarter.stop`."""
        if process := self._processes.pop(name, None):
            await process.stop(seconds)

    async def lose(self, name: str) -> None:
        """End a replica that has failed."""
        await self.stop(name, 0.0)

    def list(self) -> Mapping[str, str]:
        """Return the replicas that run; their host is "", this one."""
        return {name: "" for name, each in self._processes.items() if each.is_running}

    async def close(self) -> None:
        """End all replicas."""
        await asyncio.gather(*(self.stop(name, END_SECONDS) for name in tuple(self._processes)))


def models_of(generation: Generation) -> list[tuple[str, str, str, float | None]]:
    """Return name, version, path and share of each version of each model."""
    return [(each.name, each.version, str(each.path), each.share) for each in generation.models]
