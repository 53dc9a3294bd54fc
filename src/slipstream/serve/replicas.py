"""Where models run: in this process, by threads of its own; or see `pool`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from slipstream.infer.machine import usable_cores
from slipstream.infer.package.package import Manifest
from slipstream.infer.run.session import load_executable, prepared
from slipstream.infer.run.sharing import Sharing, fastest_sharing
from slipstream.serve.batcher import RunResult
from slipstream.serve.signature import Arrays

# Seconds of a run that others are not to notice.
_SHORT = 0.003


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that was loaded.

    Args:
        manifest: of its package.
        runs: that may be under way at a time.
        seconds: of a run, as measured.
    """

    manifest: Manifest
    runs: int
    seconds: float


class Replicas(Protocol):
    """Something that runs models."""

    async def load(self, key: str, path: Path) -> LoadedModel:
        """Loads a model under a key that is new: MODEL/NUMBER.

        Raises UsageError or UnsupportedError for a file that cannot be served.
        """
        ...

    def run(self, key: str, inputs: Arrays, is_alone: bool) -> Awaitable[RunResult]:
        """Returns the outputs of one run, which has all cores if it is alone, and its seconds."""
        ...

    async def unload(self, key: str) -> None:
        """Lets go of a model, of which no run is under way."""
        ...

    async def close(self) -> None:
        """Lets go of everything."""
        ...


class ModelRunner:
    """A model in this process, with threads for its runs.

    A run that is alone has all the threads that the model was compiled for, which takes least time;
    runs side by side have an executable whose runs share the cores, where more of them are done so.

    Args:
        path: of its package.
        threads: of a run that is alone; None: those that it was compiled for.
        cores: that all runs share.
        runs: at a time, as was found before; None: it is measured, which takes seconds.
    """

    def __init__(
        self, path: Path, threads: int | None, cores: int, runs: int | None = None
    ) -> None:
        loaded = load_executable(path, threads)
        manifest, inputs = loaded.package.manifest, loaded.package.check.inputs
        alone = Sharing(
            loaded.executable, manifest.recipe.streams * max(cores // loaded.threads, 1)
        )
        make = partial(prepared, loaded.package, cores)
        if runs is None:
            together = fastest_sharing(alone, inputs, cores, make)
        else:
            together = alone if runs == alone.runs else Sharing(make(runs), runs)
        self._alone, self._together = alone.executable, together.executable
        begin = time.monotonic()
        self._alone.run(inputs)
        self.ready = LoadedModel(manifest, together.runs, time.monotonic() - begin)
        self.pool = ThreadPoolExecutor(together.runs, thread_name_prefix="slipstream-serve")

    def run(self, inputs: Arrays, is_alone: bool) -> RunResult:
        """Returns the outputs of one run, which has all cores if it is alone, and its seconds.
        Blocks."""
        begin = time.monotonic()
        outputs = (self._alone if is_alone else self._together).run(inputs)
        return outputs, time.monotonic() - begin

    def close(self) -> None:
        """Waits for runs that are under way, and lets go of the model."""
        self.pool.shutdown()
        self._alone.close()
        if self._together is not self._alone:
            self._together.close()


class ModelRunners:
    """The models of a process; a file that takes over shares the cores as the one before did.

    Args:
        threads: of a run that is alone; None: those that each was compiled for.
        cores: that runs share.
    """

    def __init__(self, threads: int | None, cores: int) -> None:
        self._threads, self._cores = threads, cores
        self._runners: dict[str, ModelRunner] = {}
        self._runs: dict[str, int] = {}

    def load(self, key: str, path: Path) -> LoadedModel:
        """As of `Replicas`; blocks."""
        model = key.rpartition("/")[0]
        runner = ModelRunner(path, self._threads, self._cores, self._runs.get(model))
        self._runs[model] = runner.ready.runs
        self._runners[key] = runner
        return runner.ready

    def get(self, key: str) -> ModelRunner:
        """Returns a model that was loaded."""
        return self._runners[key]

    def unload(self, key: str) -> None:
        """As of `Replicas`; blocks."""
        self._runners.pop(key).close()

    def close(self) -> None:
        """Lets go of all; blocks."""
        for key in list(self._runners):
            self.unload(key)


class InProcess:
    """Runs models in this process.

    Args:
        threads: of a run that is alone; None: those that each was compiled for.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._runners = ModelRunners(threads, usable_cores())

    async def load(self, key: str, path: Path) -> LoadedModel:
        """As of `Replicas`."""
        return await asyncio.get_running_loop().run_in_executor(None, self._runners.load, key, path)

    def run(self, key: str, inputs: Arrays, is_alone: bool) -> asyncio.Future[RunResult]:
        """As of `Replicas`. A short run that is alone is done here and now: to wake another thread
        takes a part of its time, and nobody else waits."""
        runner = self._runners.get(key)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[RunResult] = loop.create_future()
        if is_alone and runner.ready.seconds < _SHORT:
            _settle(result, _found(runner, inputs, is_alone))
            return result

        def run() -> None:
            if result.cancelled():
                return
            loop.call_soon_threadsafe(_settle, result, _found(runner, inputs, is_alone))

        runner.pool.submit(run)
        return result

    async def unload(self, key: str) -> None:
        """As of `Replicas`."""
        await asyncio.get_running_loop().run_in_executor(None, self._runners.unload, key)

    async def close(self) -> None:
        """As of `Replicas`."""
        await asyncio.get_running_loop().run_in_executor(None, self._runners.close)


def _found(runner: ModelRunner, inputs: Arrays, is_alone: bool) -> RunResult | Exception:
    try:
        return runner.run(inputs, is_alone)
    except Exception as error:  # noqa: BLE001  # of engines: who asked is told
        return error


def _settle(result: asyncio.Future[RunResult], found: RunResult | Exception) -> None:
    if result.done():
        return
    if isinstance(found, Exception):
        result.set_exception(found)
    else:
        result.set_result(found)
