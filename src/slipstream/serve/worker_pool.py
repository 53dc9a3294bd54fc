"""A pool of worker processes that execute the models; each process is a replica.

A run has no side effects. So a run whose process died is repeated in another process, without an
error for the client. A process that died is replaced by a new process with all models.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slipstream.errors import SlipstreamError, UnsupportedError, UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.machine import usable_cores
from slipstream.infer.package.package import read
from slipstream.serve.batcher import RunResult
from slipstream.serve.frames import SIZES, parts_of, pieces_of
from slipstream.serve.refusals import Reason, RequestRefusedError
from slipstream.serve.replicas import LoadedModel
from slipstream.serve.signature import Arrays

_LOG = logging.getLogger(__name__)
# Seconds that a run waits for a replica while all of them are being started again. Chosen by hand,
# not measured.
_PATIENCE = 30.0
# Seconds between two starts of a replica that ends at once. Chosen by hand, not measured.
_PAUSE = 0.5
# Largest number of attempts at a run, because a model may kill every process. Chosen by hand.
_ATTEMPTS = 8


class WorkerLostError(SlipstreamError):
    """Error: a worker process ended before it answered."""


class Replica:
    """A worker process, as the server sees it.

    Args:
        threads: Number of threads of a run if no other request for the model is open; None keeps
            the number that each model was compiled for.
        cores: Number of cores that the runs of the process share.
        device: Device of the models; see `slipstream.infer.load` (default "auto").
    """

    def __init__(self, threads: int | None, cores: int, device: str = "auto") -> None:
        self._threads, self._cores, self._device = threads, cores, device
        self._numbers = itertools.count()
        self._pending: dict[int, asyncio.Future[tuple[dict[str, Any], Arrays]]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._is_closed = False
        self.keys: set[str] = set()  # keys of the models that are loaded in the process

    @property
    def busy(self) -> int:
        """Number of calls that the process has not answered yet."""
        return len(self._pending)

    @property
    def pid(self) -> int | None:
        """Identifier of the process; None before the process has started."""
        return None if self._process is None else self._process.pid

    async def serve(self) -> None:
        """Start the process, and receive its answers until it ends."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "slipstream.serve.worker", str(theirs.fileno()),
                str(self._threads or 0), str(self._cores), self._device,
                pass_fds=[theirs.fileno()],
            )  # fmt: skip
        reader, self._writer = await asyncio.open_unix_connection(sock=ours, limit=1 << 20)
        if self._is_closed:  # while the process was starting
            self._writer.close()
        try:
            while True:
                length, num_bytes = SIZES.unpack(await reader.readexactly(SIZES.size))
                head = await reader.readexactly(length)
                payload = await reader.readexactly(num_bytes)
                content, tensors = parts_of(head, payload)
                answer = self._pending.pop(content["number"], None)
                if answer is not None and not answer.done():
                    answer.set_result((content, tensors))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            await self._end()

    async def call(
        self, action: str, key: str, tensors: Mapping[str, Array], **arguments: Any
    ) -> tuple[dict[str, Any], Arrays]:
        """Send a call to the process, and return its answer.

        Args:
            action: Name of the call: "load", "run" or "unload".
            key: Key of the model.
            tensors: Inputs of a run by name.
            arguments: Further values that `action` needs.

        Raises WorkerLostError if the process ends before it answers.
        """
        if self._writer is None or self._writer.is_closing():
            raise WorkerLostError("the replica has not started or has ended")
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        try:
            content = {"number": number, "action": action, "key": key, **arguments}
            self._writer.writelines(pieces_of(content, tensors))
            await self._writer.drain()
            return await answer
        except ConnectionError as error:
            raise WorkerLostError("the connection to the replica is lost") from error
        finally:
            self._pending.pop(number, None)

    async def _end(self) -> None:
        self.keys.clear()
        if self._writer is not None:
            self._writer.close()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(WorkerLostError("the replica ended"))
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()

    def close(self) -> None:
        """Close the connection, which ends the process, also if it is still starting."""
        self._is_closed = True
        if self._writer is not None:
            self._writer.close()


class WorkerPool:
    """Several worker processes, each with all models.

    Args:
        count: Number of worker processes.
        threads: Number of threads of a run if no other request for the model is open; None divides
            the cores evenly among the processes.
        devices: Devices of the processes, which take turns (default: "auto"); see
            `slipstream.infer.load`.
    """

    def __init__(self, count: int, threads: int | None, devices: Sequence[str] = ("auto",)) -> None:
        cores = max(usable_cores() // count, 1)
        self.replicas = [
            Replica(threads or cores, cores, devices[number % len(devices)])
            for number in range(count)
        ]
        self._paths: dict[str, Path] = {}
        self._changed = asyncio.Condition()
        self._is_closing = False
        self._tasks = [asyncio.create_task(self._keep(replica)) for replica in self.replicas]

    async def load(self, key: str, path: Path) -> LoadedModel:
        """Load a model in every process; see `Replicas.load`."""
        manifest = (await asyncio.get_running_loop().run_in_executor(None, read, path)).manifest
        self._paths[key] = path
        try:
            answers = await asyncio.gather(*(self._loaded(each, key) for each in self.replicas))
        except SlipstreamError:
            del self._paths[key]
            raise
        runs = sum(answer["runs"] for answer in answers)
        devices = tuple(answer["device"] for answer in answers)
        return LoadedModel(manifest, runs, max(answer["seconds"] for answer in answers), devices)

    async def run(self, key: str, inputs: Arrays, is_alone: bool) -> RunResult:
        """Execute a run in the process with the fewest open calls; see `Replicas.run`."""
        for _ in range(_ATTEMPTS):
            replica = await self._free(key)
            try:
                content, outputs = await replica.call("run", key, inputs, is_alone=is_alone)
            except WorkerLostError:
                # The replica gets no more runs, even before the end of its process is noticed.
                replica.keys.clear()
                continue
            if "error" in content:
                raise RuntimeError(content["error"])
            return outputs, content["seconds"]
        raise RequestRefusedError(
            Reason.FAILED, f"{_ATTEMPTS} replicas ended while they executed the model"
        )

    async def unload(self, key: str) -> None:
        """Release a model in every process; see `Replicas.unload`."""
        del self._paths[key]
        for replica in self.replicas:
            if key in replica.keys:
                replica.keys.discard(key)
                await asyncio.gather(replica.call("unload", key, {}), return_exceptions=True)

    async def close(self) -> None:
        """End all processes; see `Replicas.close`."""
        self._is_closing = True
        for replica in self.replicas:
            replica.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, replica: Replica) -> None:
        """Start a process, and start it again whenever it ends."""
        while not self._is_closing:
            serving = asyncio.create_task(replica.serve())
            filling = asyncio.create_task(self._fill(replica))
            await serving
            filling.cancel()
            if not self._is_closing:
                _LOG.warning("the replica %s ended and is started again", replica.pid)
                await asyncio.sleep(_PAUSE)

    async def _fill(self, replica: Replica) -> None:
        """Load all models in a process that has just started."""
        for key in list(self._paths):
            await self._loaded(replica, key)

    async def _loaded(self, replica: Replica, key: str) -> dict[str, Any]:
        """Load a model in a process, and wait for the process if it is still starting."""
        while True:
            try:
                path = str(self._paths[key])
                content, _ = await replica.call("load", key, {}, path=path)
            except WorkerLostError:
                if self._is_closing:
                    raise
                await asyncio.sleep(_PAUSE / 10)
                continue
            if "error" in content:
                kinds = {"usage": UsageError, "unsupported": UnsupportedError}
                raise kinds[content["kind"]](content["error"])
            async with self._changed:
                replica.keys.add(key)
                self._changed.notify_all()
            return content

    async def _free(self, key: str) -> Replica:
        """Return the replica with the fewest open calls among those that have a model."""

        def ready() -> list[Replica]:
            return [replica for replica in self.replicas if key in replica.keys]

        if not ready():
            async with self._changed:
                try:
                    await asyncio.wait_for(self._changed.wait_for(ready), _PATIENCE)
                except asyncio.TimeoutError:
                    raise RequestRefusedError(
                        Reason.UNAVAILABLE,
                        "no replica is running; they are being started again",
                        1.0,
                    ) from None
        return min(ready(), key=lambda replica: replica.busy)
