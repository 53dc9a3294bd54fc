"""The display of one attempt: it passes everything on to the journal, and watches for hangs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

from slipstream.cluster.head.placement import RunPlacement
from slipstream.cluster.launch.display import JsonDisplay
from slipstream.cluster.launch.launcher import Failure

LOOK_SECONDS = 0.5
LEFT_CODE = 128 + signal.SIGTERM


class AttemptDisplay:
    """The display of one attempt, which ends the attempt at the deadline or when the ranks hang.

    Args:
        shown: Journal's display, to which everything is passed on.
        placement: Run of the attempt.
        find_leaving: Function that returns the name of a host that the cloud takes away, so that
            the attempt must end now; or "".

    Attributes:
        failure: Failure of the attempt, or None.
    """

    def __init__(
        self, shown: JsonDisplay, placement: RunPlacement, find_leaving: Callable[[], str]
    ) -> None:
        self._shown = shown
        self._placement = placement
        self._find_leaving = find_leaving
        self._leaving = ""
        self._last_sign = time.monotonic()
        self._steps: dict[int, int] = {}
        self._last_step = 0.0
        self._is_done = threading.Event()
        self._hang = ""
        self.failure: Failure | None = None

    @contextmanager
    def watched(self) -> Generator[None]:
        """Watch the attempt in a thread during a `with` block."""
        watcher = threading.Thread(target=self._watch, name="attempt")
        watcher.start()
        try:
            yield
        finally:
            self._is_done.set()
            watcher.join()
        if self._hang and self.failure is not None:
            self.failure = _as_hang(self.failure, self._hang)
        if self._leaving and self.failure is not None:
            self.failure = _as_loss(self.failure, self._leaving)

    def _watch(self) -> None:
        while not self._is_done.wait(LOOK_SECONDS):
            deadline = self._placement.deadline_at
            if deadline is not None and time.time() >= deadline:
                self._end("the deadline is over")
                return
            self._leaving = self._find_leaving()
            if self._leaving:
                self._end(f"the cloud takes {self._leaving} away")
                return
            self._hang = self._look_for_hang()
            if self._hang:
                self._end(self._hang)
                return

    def _look_for_hang(self) -> str:
        """Return why the ranks are judged to hang, or ""."""
        rules, now = self._placement.retry, time.monotonic()
        if rules.silence_seconds and now - self._last_sign >= rules.silence_seconds:
            return f"no rank has printed a line for {rules.silence_seconds:g} s"
        steps = self._steps.copy()
        if rules.progress_seconds and steps and now - self._last_step >= rules.progress_seconds:
            furthest = max(steps, key=lambda rank: steps[rank])
            return (
                f"no rank has come further for {rules.progress_seconds:g} s; rank {furthest} has"
                f" reported step {steps[furthest]}"
            )
        return ""

    def _end(self, reason: str) -> None:
        """End the ranks with a signal, which the launcher passes on, and with a second signal."""
        self.note(f"{reason}: the ranks are ended")
        os.kill(os.getpid(), signal.SIGTERM)
        if not self._is_done.wait(self._placement.grace_seconds):
            os.kill(os.getpid(), signal.SIGTERM)

    # ---- the display ----

    def line(self, rank: int, text: str, *, is_error: bool) -> None:
        """Pass on a line, which is a sign of life."""
        self._last_sign = time.monotonic()
        self._shown.line(rank, text, is_error=is_error)

    def progress(self, rank: int, text: str) -> None:
        """Take note of a progress line, which is a sign of life."""
        self._last_sign = time.monotonic()
        self._shown.progress(rank, text)

    def step(self, rank: int, number: int) -> None:
        """Take note of a step; one that differs from the rank's last one is progress."""
        self._last_sign = time.monotonic()
        if self._steps.get(rank) != number:
            self._last_step = self._last_sign
        self._steps[rank] = number

    @property
    def has_no_reader(self) -> bool:
        """Whether nobody can read the journal; a client that is gone does not matter."""
        return False

    def started(self, rank: int, host: str, pid: int) -> None:
        """Pass on that a rank has started."""
        self._last_sign = self._last_step = time.monotonic()
        self._shown.started(rank, host, pid)

    def named(self, rank: int, host: str, first_rank: int | None) -> None:
        """Pass on the name of a slot's next process."""
        self._shown.named(rank, host, first_rank)

    def running(self, count: int) -> None:
        """Pass on the number of processes."""
        self._shown.running(count)

    def exited(self, rank: int, host: str, status: int) -> None:
        """Pass on that a rank has ended."""
        self._shown.exited(rank, host, status)

    def note(self, text: str) -> None:
        """Pass on a remark."""
        self._shown.note(text)

    def finished(self, failure: Failure | None) -> None:
        """Keep the result of the attempt, and pass it on."""
        self.failure = failure
        self._shown.finished(failure)


def _as_loss(failure: Failure, host: str) -> Failure:
    """Return the failure of ranks that were ended because a host leaves, and not by the user."""
    reason = f"the cloud takes {host} away"
    return replace(failure, host=host, reason=reason, exit_code=LEFT_CODE, after_signal="")


def _as_hang(failure: Failure, reason: str) -> Failure:
    """Return the failure of ranks that were ended because they hung, and not by the user."""
    return replace(failure, reason=reason, exit_code=1, after_signal="")
