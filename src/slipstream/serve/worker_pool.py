"""Replicas in processes of their own: what one cannot finish, another does.

Runs have no effects but their results, so a run whose process died is begun again elsewhere, and
nobody notices. A process that died is started again, with all models.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import sys
from collections.abc import Mapping
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
# Seconds in which a run finds a replica that works, while all are being started again.
_PATIENCE = 30.0
# Seconds between two starts of a replica that ends at once.
_PAUSE = 0.5
_TIMES = 8  # that a run is begun again; a model that kills each process gets no more


class WorkerLostError(SlipstreamError):
    """A replica's process ended before it answered."""


class Replica:
    """A process that runs models.

    Args:
        threads: of a run that is alone; None: those that each model was compiled for.
        cores: that its runs share.
    """

    def __init__(self, threads: int | None, cores: int) -> None:
        self._threads, self._cores = threads, cores
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[tuple[dict[str, Any], Arrays]]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.keys: set[str] = set()  # that it can run

    @property
    def busy(self) -> int:
        """What it was asked and has not answered."""
        return len(self._asked)

    @property
    def pid(self) -> int | None:
        """Of its process; None: it has not begun."""
        return None if self._process is None else self._process.pid

    async def serve(self) -> None:
        """Starts the process, and hears what it answers until it ends."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "slipstream.serve.worker", str(theirs.fileno()),
                str(self._threads or 0), str(self._cores), pass_fds=[theirs.fileno()],
            )  # fmt: skip
        reader, self._writer = await asyncio.open_unix_connection(sock=ours, limit=1 << 20)
        try:
            while True:
                length, num_bytes = SIZES.unpack(await reader.readexactly(SIZES.size))
                head = await reader.readexactly(length)
                payload = await reader.readexactly(num_bytes)
                content, tensors = parts_of(head, payload)
                answer = self._asked.pop(content["number"], None)
                if answer is not None and not answer.done():
                    answer.set_result((content, tensors))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            await self._end()

    async def ask(
        self, do: str, key: str, tensors: Mapping[str, Array], **more: Any
    ) -> tuple[dict[str, Any], Arrays]:
        """Returns what the process answers. Raises WorkerLostError if it ends before."""
        if self._writer is None or self._writer.is_closing():
            raise WorkerLostError("the replica is not there")
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            content = {"number": number, "do": do, "key": key, **more}
            self._writer.writelines(pieces_of(content, tensors))
            await self._writer.drain()
            return await answer
        except ConnectionError as error:
            raise WorkerLostError("the replica is gone") from error
        finally:
            self._asked.pop(number, None)

    async def _end(self) -> None:
        self.keys.clear()
        if self._writer is not None:
            self._writer.close()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(WorkerLostError("the replica ended"))
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()

    def close(self) -> None:
        """Closes the link, with which the process ends."""
        if self._writer is not None:
            self._writer.close()


class WorkerPool:
    """Several processes that all have all models.

    Args:
        count: of processes.
        threads: of a run that is alone; None: those that each model was compiled for.
    """

    def __init__(self, count: int, threads: int | None) -> None:
        cores = max(usable_cores() // count, 1)
        self.replicas = [Replica(threads or cores, cores) for _ in range(count)]
        self._paths: dict[str, Path] = {}
        self._changed = asyncio.Condition()
        self._is_closing = False
        self._tasks = [asyncio.create_task(self._keep(each)) for each in self.replicas]

    async def load(self, key: str, path: Path) -> LoadedModel:
        """As of `replicas.Replicas`: when every process has loaded it."""
        manifest = (await asyncio.get_running_loop().run_in_executor(None, read, path)).manifest
        self._paths[key] = path
        try:
            found = await asyncio.gather(*(self._loaded(each, key) for each in self.replicas))
        except SlipstreamError:
            del self._paths[key]
            raise
        runs = sum(each["runs"] for each in found)
        return LoadedModel(manifest, runs, max(each["seconds"] for each in found))

    async def run(self, key: str, inputs: Arrays, is_alone: bool) -> RunResult:
        """As of `replicas.Replicas`."""
        for _ in range(_TIMES):
            replica = await self._free(key)
            try:
                content, outputs = await replica.ask("run", key, inputs, is_alone=is_alone)
            except WorkerLostError:
                # It is asked no more before it is started again, though its end is not heard yet.
                replica.keys.clear()
                continue
            if "error" in content:
                raise RuntimeError(content["error"])
            return outputs, content["seconds"]
        raise RequestRefusedError(
            Reason.FAILED, f"{_TIMES} replicas ended while they ran the model"
        )

    async def unload(self, key: str) -> None:
        """As of `replicas.Replicas`."""
        del self._paths[key]
        for replica in self.replicas:
            if key in replica.keys:
                replica.keys.discard(key)
                await asyncio.gather(replica.ask("unload", key, {}), return_exceptions=True)

    async def close(self) -> None:
        """As of `replicas.Replicas`."""
        self._is_closing = True
        for replica in self.replicas:
            replica.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, replica: Replica) -> None:
        """Starts a process again whenever it ends."""
        while not self._is_closing:
            serving = asyncio.create_task(replica.serve())
            filling = asyncio.create_task(self._fill(replica))
            await serving
            filling.cancel()
            if not self._is_closing:
                _LOG.warning("the replica %s ended and is started again", replica.pid)
                await asyncio.sleep(_PAUSE)

    async def _fill(self, replica: Replica) -> None:
        """Loads what the others have."""
        for key in list(self._paths):
            await self._loaded(replica, key)

    async def _loaded(self, replica: Replica, key: str) -> dict[str, Any]:
        """Loads a model in a process, if it is not there already; waits for one that begins."""
        while True:
            try:
                path = str(self._paths[key])
                content, _ = await replica.ask("load", key, {}, path=path)
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
        """The replica that has least to do, of those that have a model."""

        def ready() -> list[Replica]:
            return [each for each in self.replicas if key in each.keys]

        if not ready():
            async with self._changed:
                try:
                    await asyncio.wait_for(self._changed.wait_for(ready), _PATIENCE)
                except asyncio.TimeoutError:
                    raise RequestRefusedError(
                        Reason.UNAVAILABLE, "no replica works; they are started again", 1.0
                    ) from None
        return min(ready(), key=lambda each: each.busy)
