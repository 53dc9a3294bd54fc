"""Where models run: in this process, by threads of its own; or see `team`."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slipstream.infer.engines import Executable
from slipstream.infer.package import Manifest
from slipstream.infer.serving.signature import Arrays
from slipstream.infer.session import load_executable


@dataclass(frozen=True, slots=True)
class Ready:
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

    async def load(self, key: str, path: Path) -> Ready:
        """Loads a model under a key that is new.

        Raises UsageError or UnsupportedError for a file that cannot be served.
        """
        ...

    async def run(self, key: str, inputs: Arrays) -> Arrays:
        """Returns the outputs of one run."""
        ...

    async def unload(self, key: str) -> None:
        """Lets go of a model, of which no run is under way."""
        ...

    async def close(self) -> None:
        """Lets go of everything."""
        ...


class Runner:
    """A model in this process, with threads for its runs. Blocks.

    Args:
        path: of its package.
        threads: of a run; None: those that it was compiled for.
    """

    def __init__(self, path: Path, threads: int | None) -> None:
        loaded = load_executable(path, threads)
        self._executable: Executable = loaded.executable
        manifest = loaded.package.manifest
        begin = time.monotonic()
        self._executable.run(loaded.package.check.inputs)
        self.ready = Ready(manifest, manifest.recipe.streams, time.monotonic() - begin)
        self.pool = ThreadPoolExecutor(self.ready.runs, thread_name_prefix="slipstream-serve")

    def run(self, inputs: Arrays) -> Arrays:
        """Returns the outputs of one run."""
        return self._executable.run(inputs)

    def close(self) -> None:
        """Waits for runs that are under way, and lets go of the model."""
        self.pool.shutdown()
        self._executable.close()


class InProcess:
    """Runs models in this process.

    Args:
        threads: of a run; None: those that each was compiled for.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._runners: dict[str, Runner] = {}

    async def load(self, key: str, path: Path) -> Ready:
        """As of `Replicas`."""
        loop = asyncio.get_running_loop()
        self._runners[key] = await loop.run_in_executor(None, Runner, path, self._threads)
        return self._runners[key].ready

    async def run(self, key: str, inputs: Arrays) -> Arrays:
        """As of `Replicas`."""
        runner = self._runners[key]
        return await asyncio.get_running_loop().run_in_executor(runner.pool, runner.run, inputs)

    async def unload(self, key: str) -> None:
        """As of `Replicas`."""
        runner = self._runners.pop(key)
        await asyncio.get_running_loop().run_in_executor(None, runner.close)

    async def close(self) -> None:
        """As of `Replicas`."""
        await asyncio.gather(*(self.unload(key) for key in list(self._runners)))
