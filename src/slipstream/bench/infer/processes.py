"""Processes of an inference benchmark, each pinned to cores from its start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from slipstream.bench.infer.job import InferJob
from slipstream.errors import SlipstreamError, UsageError

MODULE = "slipstream.bench"
END_SECONDS = 30.0  # time limit in seconds for a process to end by itself
NUM_LAST_LINES = 5  # last lines of a failed process's output, which the error quotes


class ProcessError(SlipstreamError):
    """A process failed; the message quotes the last lines of its output."""


def cores_of(threads: int) -> frozenset[int]:
    """Return the last `threads` of the cores that this process may use.

    Raises:
        UsageError: this process may not use that many cores.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= threads <= len(allowed):
        raise UsageError(
            f"threads is {threads}; allowed: 1 to {len(allowed)}, the cores of this process"
        )
    return frozenset(allowed[-threads:])


@contextmanager
def _pinned(cores: frozenset[int]) -> Generator[None]:
    """Pin processes that start inside the `with` block to cores.

    Processes must be pinned before they start, because engines count their cores only at the start.
    The calling program must have only one thread, because the program is pinned, too.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def run_to_end(module: str, argument: str, cores: frozenset[int]) -> str:
    """Run a module of `slipstream.bench` to its end, and return its output.

    Raises:
        ProcessError: the process failed.
    """
    with tempfile.TemporaryFile() as log:
        with _pinned(cores):
            command = [sys.executable, "-m", f"{MODULE}.{module}", argument]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, check=False)
        if done.returncode != 0:
            raise ProcessError(f"{module} failed: {_last_lines(log)}")
    return done.stdout.decode(errors="replace")


class Contestant:
    """Process that runs one contender and answers commands.

    Use the object as a context manager, or call `close`.
    """

    def __init__(self, job: InferJob, cores: frozenset[int], module: str = "infer.process") -> None:
        """Start a process, and wait until it is ready.

        Args:
            job: Contender to run, and its settings.
            cores: Cores to which the process is pinned.
            module: Module of `slipstream.bench` that the process runs (default "infer.process").

        Raises:
            ProcessError: the process failed.
        """
        self.job = job
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        with _pinned(cores):
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{MODULE}.{module}", job.as_text()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
            )
        self.ready: dict[str, Any] = {}
        try:
            self.ready = self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, command: str) -> dict[str, Any]:
        """Send a command to the process, and return its answer.

        Raises:
            ProcessError: the process failed.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ProcessError(f"{self.job.contender} ended: {_last_lines(self._log)}") from error
        return self._answer()

    def close(self) -> None:
        """End the process; a second call does nothing."""
        if self._log.closed:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> Contestant:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(END_SECONDS)
            raise ProcessError(f"{self.job.contender} failed: {_last_lines(self._log)}")
        return json.loads(line)


def _last_lines(log: Any) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    return " / ".join(line.strip() for line in lines[-NUM_LAST_LINES:] if line.strip())
