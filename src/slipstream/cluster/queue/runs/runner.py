"""The runner for jobs over machines: each is a run, with a client on the daemon's host.

The token is the name of the run, and a run is begun once. Its client is a process that outlives the
daemon (see `ProcessRunner`), under the token and a number. If the client is killed, the run goes on
without it, and another client with the next number takes over; this is asked for by the state
"unknown". Only the record of the run says that it has ended.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from slipstream.cluster.queue import shim
from slipstream.cluster.queue.attempts import Attempt, StartStatus
from slipstream.cluster.queue.folders import RUN_PREFIX, fifo_path, start_folder, starts_folder
from slipstream.cluster.queue.runner import ProcessRunner, QueueRunner
from slipstream.cluster.queue.runs.client import STOPPING, TROUBLE, newest_run
from slipstream.cluster.queue.shapes import HostShare
from slipstream.cluster.records import RunLog, RunRecord, Store

CLIENT = "slipstream.cluster.queue.runs.client"
# Number of clients of a run, and the longest pause between two of them. Chosen by hand: hosts that
# are out of reach for an hour are found again.
MAX_CLIENTS = 70
LONGEST_PAUSE_SECONDS = 60.0
# Time for which a client may take longer than the job: it cleans up the hosts, and reaches some of
# them only after ssh's time limits.
CLEANING_SECONDS = 120.0


class RunRunner:
    """The runner for jobs over machines.

    Args:
        home: Folder of the records.
        processes: Runner for the clients.
    """

    def __init__(self, home: Path, processes: ProcessRunner) -> None:
        self._home = home
        self._processes = processes
        self._log = RunLog(Store(home))

    def start(self, attempt: Attempt) -> None:
        """Start the client of an attempt, or the next one if the newest was lost."""
        number = self._newest(attempt.token)
        if self.poll(attempt.token).state == "unknown":
            self._start_client(attempt.token, number + 1)

    def poll(self, token: str) -> StartStatus:
        """Return what became of a token."""
        number = self._newest(token)
        if number == 0:
            return StartStatus(state="unknown")
        client = self._client(token, number)
        if self._processes.poll(client).state == "running":
            return StartStatus(state="running")
        record = newest_run(self._log, token)
        if record is not None and record.has_ended:
            return self._end(token, record)
        if record is None and (self._processes.is_told_to_stop(client) or self._is_stopping(token)):
            return StartStatus(state="ended")
        if number >= MAX_CLIENTS:
            return StartStatus(state="ended", reason=f"{number} clients of the run were lost")
        return StartStatus(state="running" if self._pauses(client, number) else "unknown")

    def stop(self, token: str, grace_seconds: float) -> None:
        """Tell a job to save and end; its ranks have the grace that the run was started with."""
        number = self._newest(token)
        if number == 0:
            self._processes.stop(self._client(token, 1), grace_seconds)
            return
        path = start_folder(self._home, token) / STOPPING
        if not self._is_stopping(token):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shim.write_durably(path, str(number))
        if number <= int(shim.read(path) or 0):
            self._processes.stop(self._client(token, number), grace_seconds + CLEANING_SECONDS)
        if self.poll(token).state == "unknown":
            self._start_client(token, number + 1)

    def _end(self, token: str, record: RunRecord) -> StartStatus:
        """Return the status of a run that has ended."""
        trouble = shim.read(start_folder(self._home, token) / TROUBLE)
        if trouble is None or record.state != "failed":
            return StartStatus(state="ended", exit_code=record.exit_code, reason=record.message)
        fields: dict[str, str] = json.loads(trouble)
        is_unreached = fields["phase"] == "start"
        return StartStatus(state="ended", reason=fields["reason"], is_unreached=is_unreached)

    def _start_client(self, token: str, number: int) -> None:
        attempt = Attempt(
            token=self._client(token, number),
            job=int(token.split("-")[1]),
            state="starting",
            command=(sys.executable, "-m", CLIENT, str(self._home.absolute()), token),
            cwd="/",
            environ={},
            allocation=(HostShare(machine="client"),),
            shares_gpus=False,
            grace_seconds=CLEANING_SECONDS,
        )
        self._processes.start(attempt)

    def _client(self, token: str, number: int) -> str:
        return f"{token}.{number}"

    def _newest(self, token: str) -> int:
        """Return the number of clients that were started, or withdrawn."""
        number = 0
        while (starts_folder(self._home) / self._client(token, number + 1)).is_dir():
            number += 1
        return number

    def _is_stopping(self, token: str) -> bool:
        return (start_folder(self._home, token) / STOPPING).exists()

    def _pauses(self, client: str, number: int) -> bool:
        """Return whether the next client has to wait, because clients end again and again."""
        ended = starts_folder(self._home) / client / "exit"
        pause = min(2.0 ** (number - 1) - 1.0, LONGEST_PAUSE_SECONDS)
        return ended.exists() and time.time() < ended.stat().st_mtime + pause


class EveryRunner:
    """The runner for all jobs: processes on this host, and runs over machines.

    Args:
        processes: Runner for processes on this host.
        runs: Runner for jobs over machines.
    """

    def __init__(self, processes: ProcessRunner, runs: RunRunner) -> None:
        self._processes = processes
        self._runs = runs

    def start(self, attempt: Attempt) -> None:
        """Start an attempt, if its token was neither started nor stopped before."""
        self._of(attempt.token).start(attempt)

    def poll(self, token: str) -> StartStatus:
        """Return what became of a token."""
        return self._of(token).poll(token)

    def stop(self, token: str, grace_seconds: float) -> None:
        """Tell a job to save and end; after some time it is killed."""
        self._of(token).stop(token, grace_seconds)

    def _of(self, token: str) -> QueueRunner:
        return self._runs if token.startswith(RUN_PREFIX) else self._processes


def every_runner(home: Path) -> EveryRunner:
    """Return the runner for all jobs of the queue in a folder."""
    processes = ProcessRunner(starts_folder(home), fifo_path(home))
    return EveryRunner(processes, RunRunner(home, processes))
