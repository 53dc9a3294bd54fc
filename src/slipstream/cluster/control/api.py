"""The functions that a Python program calls to run jobs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipstream.cluster.control.controller import RunView
from slipstream.cluster.control.session import Confirm, RunSession
from slipstream.cluster.spec import JobSpec
from slipstream.settings import home_folder

_log = logging.getLogger(__name__)


class LogView:
    """A view that writes stages, remarks and the lines of the ranks to Python's log."""

    def stage_begins(self, name: str, host: str, expected_seconds: float | None) -> None:
        """Log nothing."""

    def stage_ends(self, name: str, host: str, seconds: float) -> None:
        """Log how long a stage took."""
        _log.info("%s on %s took %.1f s", name, host or "all hosts", seconds)

    def entry(self, entry: Mapping[str, Any]) -> None:
        """Log a line of a rank, a remark or a state."""
        match entry.get("event"):
            case "line":
                _log.info("rank %s: %s", entry.get("rank"), entry["text"])
            case "note" | "state":
                _log.info("%s %s", entry.get("state", ""), entry.get("text", ""))
            case _:
                pass

    def restore(self, entry: Mapping[str, Any]) -> None:
        """Log nothing again."""

    def note(self, text: str) -> None:
        """Log a remark."""
        _log.info("%s", text)


def run(
    job: JobSpec,
    *,
    base: Path | None = None,
    view: RunView | None = None,
    confirm: Confirm | None = None,
    detach: bool = False,
) -> int:
    """Run a job, or follow the run of its name that goes on; blocks until the job has ended.

    Args:
        job: Description of the job.
        base: Folder to which the paths of the job are relative (default None: the working
            directory).
        view: View that gets everything that happens (default None: Python's log).
        confirm: Function that gets the estimated cost before machines are created, and returns
            whether to create them (default None: they are created).
        detach: Whether to return as soon as the job has started (default False).

    Returns:
        The exit code of the job; 0 with `detach`.

    Raises:
        UsageError: the job cannot run there, or the cost was not confirmed.
        ConfigError: a host lacks something, or lets nobody in.
        PeerError: too few hosts can be reached.
    """
    session = RunSession(home_folder())
    controller = session.submit(job, base or Path.cwd(), view or LogView(), confirm)
    controller.start()
    return 0 if detach else controller.follow()


def attach(name: str, *, view: RunView | None = None) -> int:
    """Follow a run that goes on; blocks until the job has ended.

    Args:
        name: Name of the run.
        view: View that gets what happens from now on (default None: Python's log).

    Returns:
        The exit code of the job.

    Raises:
        UsageError: there is no such run.
    """
    controller = RunSession(home_folder()).open(name, view or LogView())
    controller.start()
    return controller.follow()
