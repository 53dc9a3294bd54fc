"""The daemon of the queue: it looks at what runs, decides, starts and stops, and sleeps.

It keeps nothing in memory that matters. Each round reads the database and asks the runner, so that
a daemon which was killed at any line is continued by the next one. One daemon at a time has the
lock. Commands and ends of jobs wake it through a FIFO; it also wakes by itself when a job that was
told to stop must have ended, and every few seconds for jobs whose end nobody could tell.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from slipstream.cluster.queue.attempts import Attempt, Attempts
from slipstream.cluster.queue.folders import fifo_path, queue_folder, starts_folder
from slipstream.cluster.queue.housekeeping import KeepRules, clean_up
from slipstream.cluster.queue.runner import ProcessRunner, QueueRunner
from slipstream.cluster.queue.shapes import QueuePolicy, counted
from slipstream.cluster.queue.store import QueueStore
from slipstream.errors import SlipstreamError, UsageError

_log = logging.getLogger(__name__)

# Longest sleep: the delay until the end of a job is seen whose shim was killed.
LONGEST_SLEEP_SECONDS = 5.0
# Time between two deletions of what is old.
CLEANING_SECONDS = 600.0


def process_runner(home: Path) -> ProcessRunner:
    """Return the runner for programs on this host."""
    return ProcessRunner(starts_folder(home), fifo_path(home))


class QueueDaemon:
    """The daemon for the queue in one folder.

    Args:
        store: Database of the queue.
        runner: Runner that starts the jobs.
        policy: Rules of the order of jobs.
        clock: Function that returns the time in seconds since 1970 (default time.time).
        keep: Limits of what is kept of jobs that have ended.
    """

    def __init__(
        self,
        store: QueueStore,
        runner: QueueRunner,
        policy: QueuePolicy | None = None,
        clock: Callable[[], float] = time.time,
        keep: KeepRules | None = None,
    ) -> None:
        self._store = store
        self._keep = keep or KeepRules()
        self._cleaned_at = float("-inf")
        self._home = store.home
        self._attempts = Attempts(store, policy or QueuePolicy())
        self._runner = runner
        self._clock = clock

    def serve(self, is_over: Callable[[], bool]) -> None:
        """Schedule until a function says that it is over; it is asked after each wake-up.

        Args:
            is_over: Function without arguments.

        Raises:
            UsageError: another daemon serves this queue.
        """
        with _lock(queue_folder(self._home)), _wake_ups(fifo_path(self._home)) as fifo:
            while not is_over():
                self.round()
                self._clean_up()
                select.select([fifo], [], [], LONGEST_SLEEP_SECONDS)
                _drain(fifo)

    def round(self) -> None:
        """Look at all attempts, decide, and start and stop jobs."""
        for attempt in self._attempts.open():
            self._look_at(attempt)
        decisions = self._attempts.decide(self._clock())
        if decisions.starts or decisions.preempts:
            changed = decisions.starts.keys() | decisions.preempts.keys()
            for attempt in self._attempts.open():
                if attempt.job in changed:
                    self._look_at(attempt)

    def _clean_up(self) -> None:
        """Delete what is old, from time to time."""
        now = time.monotonic()
        if now - self._cleaned_at >= CLEANING_SECONDS:
            self._cleaned_at = now
            count = clean_up(self._store, self._keep, self._clock())
            if count:
                _log.info("%s of old starts deleted", counted(count, "folder"))

    def _look_at(self, attempt: Attempt) -> None:
        """Bring one attempt forward; an error of the runner does not hold other jobs up."""
        try:
            status = self._runner.poll(attempt.token)
            stops = attempt.state in ("preempting", "cancelling")
            if status.state == "unknown" or (status.state == "running" and stops):
                self._carry_out(attempt)
                status = self._runner.poll(attempt.token)
        except SlipstreamError as error:
            _log.warning("job %d: %s; it is tried again", attempt.job, error)
            return
        if attempt.state == "starting" and status.state != "unknown":
            self._attempts.started(attempt.token, self._clock())
            _log.info("job %d runs", attempt.job)
        if status.state == "ended":
            self._attempts.ended(attempt.token, status, self._clock())
            _log.info("job %d: %s", attempt.job, self._attempts.outcome(attempt.job))

    def _carry_out(self, attempt: Attempt) -> None:
        """Start or stop a job, again if a killed daemon has done it already."""
        if attempt.state in ("preempting", "cancelling"):
            self._runner.stop(attempt.token, attempt.grace_seconds)
        else:
            self._runner.start(attempt)


@contextmanager
def _lock(folder: Path) -> Generator[None]:
    """Hold the lock of the daemon; the system gives it back when the process ends in any way."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise UsageError(
                f"process {file.read().strip() or '?'} serves the queue in {folder.parent} already;"
                " end it, or set SLIPSTREAM_HOME to another folder"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def _wake_ups(path: Path) -> Generator[int]:
    """Yield a descriptor of the FIFO, from which others can be read without an end."""
    if not path.exists():
        os.mkfifo(path, 0o600)
    fifo = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        yield fifo
    finally:
        os.close(fifo)


def _drain(fifo: int) -> None:
    try:
        while os.read(fifo, 4096):
            pass
    except BlockingIOError:
        pass  # all wake-ups are read
