"""Entries of the journal that the client writes itself, about runs that a scheduler holds."""

from __future__ import annotations

import json
import time

from slipstream.cluster.control.plan import RunPlan

CANCELLED_CODE = 143
DEADLINE_CODE = 124
# Files on the client of a run that was submitted, and of one that the user has ended.
_SUBMITTED = "submitted"
_CANCELLED = "cancelled"


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
    if not (plan.folder / _CANCELLED).exists():
        return ""
    return end_entry("cancelled", CANCELLED_CODE, "the job was cancelled")


def mark_cancelled(plan: RunPlan) -> None:
    """Remember that the user has ended a run."""
    _mark(plan, _CANCELLED)


def mark_submitted(plan: RunPlan) -> None:
    """Remember that something of a run may exist; called before anything is created."""
    _mark(plan, _SUBMITTED)


def is_submitted(plan: RunPlan) -> bool:
    """Return whether something of a run may exist."""
    return (plan.folder / _SUBMITTED).exists()


def _mark(plan: RunPlan, name: str) -> None:
    plan.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (plan.folder / name).touch()


def _line(**fields: object) -> str:
    return json.dumps({"time": time.time(), **fields}) + "\n"
