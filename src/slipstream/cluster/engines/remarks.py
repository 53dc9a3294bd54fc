"""Entries of the journal that the client writes itself, about runs that a scheduler holds."""

from __future__ import annotations

import json
import time

from slipstream.cluster.control.plan import RunPlan

CANCELLED_CODE = 143
DEADLINE_CODE = 124
_MARK = "cancelled"  # file on the client of a run that the user has ended


class Remarks:
    """Remarks about a run that waits; each is made once."""

    def __init__(self) -> None:
        self._last = ""

    def entry(self, text: str) -> str:
        """Return an entry with a remark, or "" if it is the same as the last one."""
        if text == self._last:
            return ""
        self._last = text
        return _line(event="note", text=text)


def end_entry(state: str, exit_code: int, text: str) -> str:
    """Return the last entry of a run whose head has written none.

    Args:
        state: Last state of the run, such as "failed".
        exit_code: Exit code of the run.
        text: Reason.
    """
    return _line(event="state", state=state, text=text, exit_code=exit_code)


def cancelled_entry(plan: RunPlan) -> str:
    """Return the last entry of a run that the user has ended, or "" if nobody has ended it."""
    if not (plan.folder / _MARK).exists():
        return ""
    return end_entry("cancelled", CANCELLED_CODE, "the job was cancelled")


def mark_cancelled(plan: RunPlan) -> None:
    """Remember that the user has ended a run."""
    plan.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (plan.folder / _MARK).touch()


def _line(**fields: object) -> str:
    return json.dumps({"time": time.time(), **fields}) + "\n"
