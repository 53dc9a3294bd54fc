"""The stages of a preparation, each with the time that it took, for the view and for the record."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from slipstream.cluster.records import RunLog


class StageListener(Protocol):
    """The interface of a listener for stages and remarks."""

    def stage_begins(self, name: str, host: str, expected_seconds: float | None) -> None:
        """Receive that a stage has begun, and the time that it usually takes."""

    def stage_ends(self, name: str, host: str, seconds: float) -> None:
        """Receive the time that a stage took in seconds."""

    def note(self, text: str) -> None:
        """Receive a remark."""


class RunStages:
    """The stages of one run.

    Args:
        log: Records of runs.
        number: Number of the run.
        listener: Listener that is told of each stage.
    """

    def __init__(self, log: RunLog, number: int, listener: StageListener) -> None:
        self._log = log
        self._number = number
        self._listener = listener
        self._expected = log.stage_seconds()

    @contextmanager
    def stage(self, name: str, host: str = "") -> Generator[None]:
        """Measure one stage; threads may do so at the same time.

        Args:
            name: Name of the stage, such as "files".
            host: Name of the host (default "": all hosts).
        """
        self._listener.stage_begins(name, host, self._expected.get(name))
        began_at = time.monotonic()
        yield
        seconds = round(time.monotonic() - began_at, 3)
        self._listener.stage_ends(name, host, seconds)
        where = f" on {host}" if host else ""
        facts = {"stage": name, "host": host, "seconds": seconds}
        self._log.note(self._number, "stage", f"{name}{where} took {seconds:g} s", facts)

    def fact(self, name: str, value: object) -> None:
        """Record a value."""
        self._log.add_facts(self._number, {name: value})

    def note(self, text: str) -> None:
        """Show and record a remark."""
        self._listener.note(text)
        self._log.note(self._number, "note", text)
