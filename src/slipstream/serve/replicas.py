"""Replicas that execute models in threads of this process (`worker_pool` uses other processes)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slipstream.infer.machine import usable_cores
from slipstream.infer.package.package import Manifest
from slipstream.infer.run.session import device_of, load_executable, sharing_of
from slipstream.serve.batcher import RunResult
from slipstream.serve.signature import Arrays

# Longest duration in seconds of a run that may block the event loop. Chosen by hand, not measured.
_SHORT = 0.003


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that was loaded.

    Args:
        manifest: Manifest of the model's package.
        runs: Number of runs (calls of the model) that may execute at the same time.
        seconds: Measured duration of a run in seconds.
        devices: Device of each replica that executes the model: "cpu", or the number and name of a
            GPU (default: one replica on the CPU).
    """

    manifest: Manifest
    runs: int
    seconds: float
    devices: tuple[str, ...] = ("cpu",)


class Replicas(Protocol):
    """The interface of everything that executes models."""

    async def load(self, key: str, path: Path) -> LoadedModel:
        """Load a model.

        Args:
            key: Key that identifies the model: "NAME/VERSION/NUMBER". The number is another one
                each time the model is loaded.
            path: Path of the model's package.

        Raises UsageError or UnsupportedError if the file cannot be served.
        """
        ...

    def run(self, key: str, inputs: Arrays, is_alone: bool) -> Awaitable[RunResult]:
        """Return the outputs and duration of a run; `is_alone` as in `Batcher.submit`."""
        ...

    async def unload(self, key: str) -> None:
        """Release a model that no run uses any more."""
        ...

    async def close(self) -> None:
        """Release all models."""
        ...


class ModelRunner:
    """A model in this process, with threads for its runs.

    A single run uses all threads that the model was compiled for, which gives the lowest latency.
    For concurrent runs, the model may be compiled a second time, so that each run takes only a part
    of the cores. The second executable is used if it gives a higher throughput.

    Args:
        path: Path of the model's package.
        threads: Number of threads of a single run; None keeps the number that the model was
            compiled for.
        cores: Number of cores that all concurrent runs share.
        runs: Number of concurrent runs, if known from an earlier load; None (the default) measures
            the best number, which takes seconds.
        device: Device of the model; see `slipstream.infer.load` (default "auto").
    """

    def __init__(
        self,
        path: Path,
        threads: int | None,
        cores: int,
        runs: int | None = None,
        device: str = "auto",
    ) -> None:
        loaded = load_executable(path, threads, device=device)
        manifest, inputs = loaded.package.manifest, loaded.package.check.inputs
        together = sharing_of(loaded, cores, runs)
        self._alone, self._together = loaded.executable, together.executable
        begin = time.monotonic()
        self._alone.run(inputs)
        seconds = time.monotonic() - begin
        self.ready = LoadedModel(manifest, together.runs, seconds, (device_of(loaded),))
        self.pool = ThreadPoolExecutor(together.runs, thread_name_prefix="slipstream-serve")

    def run(self, inputs: Arrays, is_alone: bool) -> RunResult:
        """Return the outputs of one run and its duration in seconds; blocks."""
        begin = time.monotonic()
        outputs = (self._alone if is_alone else self._together).run(inputs)
        return outputs, time.monotonic() - begin

    def close(self) -> None:
        """Wait for the runs that are executing, and release the model."""
        self.pool.shutdown()
        self._alone.close()
        if self._together is not self._alone:
            self._together.close()


class ModelRunners:
    """The models that one process executes.

    A model that is loaded again keeps its number of concurrent runs.

    Args:
        threads: Number of threads of a single run; None keeps the number that each model was
            compiled for.
        cores: Number of cores that all concurrent runs share.
        device: Device of the models; see `slipstream.infer.load` (default "auto").
    """

    def __init__(self, threads: int | None, cores: int, device: str = "auto") -> None:
        self._threads, self._cores, self._device = threads, cores, device
        self._runners: dict[str, ModelRunner] = {}
        self._runs: dict[str, int] = {}

    def load(self, key: str, path: Path) -> LoadedModel:
        """Load a model; see `Replicas.load`. Blocks."""
        model = key.rpartition("/")[0]
        runner = ModelRunner(path, self._threads, self._cores, self._runs.get(model), self._device)
        self._runs[model] = runner.ready.runs
        self._runners[key] = runner
        return runner.ready

    def get(self, key: str) -> ModelRunner:
        """Return a loaded model."""
        return self._runners[key]

    def unload(self, key: str) -> None:
        """Release a model; see `Replicas.unload`. Blocks."""
        self._runners.pop(key).close()

    def close(self) -> None:
        """Release all models; blocks."""
        for key in list(self._runners):
            self.unload(key)


class InProcess:
    """A replica that executes its runs in this process.

    Args:
        threads: Number of threads of a single run; None (the default) keeps the number that each
            model was compiled for.
        device: Device of the models; see `slipstream.infer.load` (default "auto").
    """

    def __init__(self, threads: int | None = None, device: str = "auto") -> None:
        self._runners = ModelRunners(threads, usable_cores(), device)

    async def load(self, key: str, path: Path) -> LoadedModel:
        """Load a model; see `Replicas.load`."""
        return await asyncio.get_running_loop().run_in_executor(None, self._runners.load, key, path)

    def run(self, key: str, inputs: Arrays, is_alone: bool) -> asyncio.Future[RunResult]:
        """Execute a run; see `Replicas.run`.

        If `is_alone` is True, the event loop's own thread executes a short run, because waking
        another thread would take a noticeable part of the run's time.
        """
        runner = self._runners.get(key)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[RunResult] = loop.create_future()
        if is_alone and runner.ready.seconds < _SHORT:
            _settle(result, _outcome(runner, inputs, is_alone))
            return result

        def run() -> None:
            if result.cancelled():
                return
            loop.call_soon_threadsafe(_settle, result, _outcome(runner, inputs, is_alone))

        runner.pool.submit(run)
        return result

    async def unload(self, key: str) -> None:
        """Release a model; see `Replicas.unload`."""
        await asyncio.get_running_loop().run_in_executor(None, self._runners.unload, key)

    async def close(self) -> None:
        """Release all models; see `Replicas.close`."""
        await asyncio.get_running_loop().run_in_executor(None, self._runners.close)


def _outcome(runner: ModelRunner, inputs: Arrays, is_alone: bool) -> RunResult | Exception:
    try:
        return runner.run(inputs, is_alone)
    except Exception as error:  # noqa: BLE001  # an engine's error answers the request
        return error


def _settle(result: asyncio.Future[RunResult], outcome: RunResult | Exception) -> None:
    if result.done():
        return
    if isinstance(outcome, Exception):
        result.set_exception(outcome)
    else:
        result.set_result(outcome)
