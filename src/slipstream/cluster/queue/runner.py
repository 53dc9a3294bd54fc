"""Runners, which start the jobs of the queue, and the one for processes on this host.

A runner is asked by token. It starts a token once, however often it is asked, knows after a new
start of the daemon what became of each token, and never starts a token that was stopped before.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Protocol

from slipstream.cluster.outside import outside
from slipstream.cluster.queue import shim
from slipstream.cluster.queue.attempts import Attempt, StartStatus
from slipstream.errors import InternalError
from slipstream.settings import QueuePart, gpu_share_environment, queue_token_variable

NEVER_STARTED = "none"


class QueueRunner(Protocol):
    """Something that starts jobs on the resources that the queue has chosen."""

    def start(self, attempt: Attempt) -> None:
        """Start an attempt, if its token was neither started nor stopped before."""
        ...

    def poll(self, token: str) -> StartStatus:
        """Return what became of a token."""
        ...

    def stop(self, token: str, grace_seconds: float) -> None:
        """Tell a job to save and end; after some time it is killed. Further calls may be made.

        Args:
            token: Name of the attempt; if it was never started, it never will be.
            grace_seconds: Time in seconds before it is killed; the shortest of all calls counts.
        """
        ...


class ProcessRunner:
    """The runner for jobs on this host: a small process beside each job outlives the daemon.

    Args:
        folder: Folder for the tokens; it is made when it is missing.
        fifo: Path of the FIFO through which the end of a job wakes the daemon.
    """

    def __init__(self, folder: Path, fifo: Path) -> None:
        self._folder = folder
        self._fifo = fifo
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def start(self, attempt: Attempt) -> None:
        """Start an attempt, if its token was neither started nor stopped before."""
        orders = {
            "root": str(self._folder),
            "token": attempt.token,
            "command": attempt.command,
            "cwd": attempt.cwd,
            "environ": {**os.environ, **attempt.environ, **self._told(attempt)},
            "variable": _variable(attempt.token),
            "poke": str(self._fifo),
        }
        # The orders are whole before the process starts, so it never reads a part of them.
        with tempfile.TemporaryFile("w+") as file, outside("queue: start of a job"):
            json.dump(orders, file)
            file.seek(0)
            command = [sys.executable, "-I", "-S", shim.__file__]
            done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InternalError(f"job {attempt.job} cannot be started: {done.stderr.strip()}")

    def poll(self, token: str) -> StartStatus:
        """Return what became of a token."""
        folder = self._folder / token
        if not folder.is_dir():
            return StartStatus(state="unknown")
        # The shim writes the exit code before it ends, so the file is read once more after that.
        code = shim.read(folder / "exit")
        if code is None and _is_followed(folder):
            return StartStatus(state="running")
        code = code or shim.read(folder / "exit")
        if code is not None:
            never = code == NEVER_STARTED
            return StartStatus(state="ended", exit_code=None if never else int(code))
        if shim.processes_with(_variable(token)):
            return StartStatus(state="running")
        return StartStatus(state="ended")

    def stop(self, token: str, grace_seconds: float) -> None:
        """Tell a job to save and end; after some time it is killed. Further calls may be made."""
        folder = self._folder / token
        with outside("queue: stop of a job"):
            if not folder.is_dir() and shim.claim(folder, {"exit": NEVER_STARTED}):
                return
            if grace_seconds < shim.read_grace(folder):
                shim.write_durably(folder / "stop", str(grace_seconds))
            if _is_followed(folder):
                shim.kill(_shim_process(folder), signal.SIGUSR1)
            else:
                _end_orphans(folder, grace_seconds)

    def was_withdrawn(self, token: str) -> bool:
        """Return whether a token was stopped before it was started."""
        return shim.read(self._folder / token / "exit") == NEVER_STARTED

    def is_told_to_stop(self, token: str) -> bool:
        """Return whether a token was stopped."""
        return (self._folder / token / "stop").exists() or self.was_withdrawn(token)

    def output_file(self, token: str) -> Path:
        """Return the file with the output of a job."""
        return self._folder / token / "output"

    def _told(self, attempt: Attempt) -> dict[str, str]:
        """Return the variables that tell a job what it may use, and make frameworks keep to it."""
        variables = self._part(attempt).as_environment()
        share = attempt.allocation[0]
        if attempt.shares_gpus and share.gpus:
            variables |= gpu_share_environment(share.gpu_units / len(share.gpus))
        return variables

    def _part(self, attempt: Attempt) -> QueuePart:
        share = attempt.allocation[0]
        memory = min((memory for _, memory in share.gpus), default=None)
        return QueuePart(
            job=attempt.job,
            token=attempt.token,
            hosts=tuple(one.machine for one in attempt.allocation),
            gpus=tuple(number for number, _ in share.gpus),
            gpu_memory_mib=memory if attempt.shares_gpus else None,
            progress_file=self._folder / attempt.token / "progress",
        )


def _variable(token: str) -> str:
    return f"{queue_token_variable()}={token}"


def _shim_process(folder: Path) -> int:
    return int((shim.read(folder / "shim") or "0").split()[0])


def _is_followed(folder: Path) -> bool:
    """Return whether the process that started a token lives."""
    mark = shim.read(folder / "shim")
    return mark is not None and shim.process_mark(int(mark.split()[0])) == mark


def _end_orphans(folder: Path, grace_seconds: float) -> None:
    """End processes of a job without a shim, which would do it."""
    told_at = (folder / "stop").stat().st_mtime if (folder / "stop").exists() else time.time()
    is_late = time.time() >= told_at + grace_seconds
    for process in shim.processes_with(_variable(folder.name)):
        shim.kill(process, signal.SIGKILL if is_late else signal.SIGTERM)
