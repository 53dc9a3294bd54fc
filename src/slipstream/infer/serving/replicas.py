"""Where models run: in this process, by threads of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from slipstream.infer.engines import Executable
from slipstream.infer.serving.signature import Arrays


class Replica(Protocol):
    """Something that runs models that it has loaded."""

    async def run(self, inputs: Arrays) -> Arrays:
        """Returns the outputs of one run."""
        ...

    async def close(self) -> None:
        """Lets go of the models, when runs that are under way have ended."""
        ...


class Threads:
    """A model in this process.

    Args:
        executable: of the model; it is closed by this object.
        runs: at a time.
    """

    def __init__(self, executable: Executable, runs: int) -> None:
        self._executable = executable
        self._pool = ThreadPoolExecutor(runs, thread_name_prefix="slipstream-serve")

    async def run(self, inputs: Arrays) -> Arrays:
        """Returns the outputs of one run."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._executable.run, inputs)

    async def close(self) -> None:
        """Waits for runs that are under way, and lets go of the model."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        self._executable.close()
