"""Reports of steps: a program tells how far it is, so that a job is found that prints and hangs.

A report is a mark in standard error that terminals do not show, so it reaches the head the way that
all output goes, from any host and out of containers. `slipstream run` takes the marks out again.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

from slipstream.settings import steps_are_reported

STANDARD_ERROR = 2
# Reports of a process that follow faster are left out.
PAUSE_SECONDS = 1.0

# An operating system command (OSC) of terminals; those with an unknown name are not shown.
_START = b"\x1b]slipstream;step="
_MARK = re.compile(re.escape(_START) + rb"(-?\d+)\x07")


class _Pause:
    """The time before which this process makes no further report."""

    until = 0.0


def report_step(step: int, environ: Mapping[str, str] = os.environ) -> None:
    """Tell the head of a run the number of this process's step.

    Ranks whose step does not change for `retry.hang_progress` are judged to hang, and are started
    again. Call it in each step, from the thread that trains; a call takes microseconds, and reports
    within a second after the last one are left out. Without a head, nothing happens.

    Args:
        step: Number of the step, or of anything else that grows while the program gets on, such as
            a batch of an evaluation.
        environ: Environment variables (default: this process's environment).
    """
    now = time.monotonic()
    if now < _Pause.until or not steps_are_reported(environ):
        return
    _Pause.until = now + PAUSE_SECONDS
    os.write(STANDARD_ERROR, _START + str(step).encode() + b"\x07")


def take_steps(data: bytes) -> tuple[bytes, list[int]]:
    """Return output without the marks in it, and the steps of these marks.

    Args:
        data: Output of a rank; an incomplete mark at its end is left in it.
    """
    if _START not in data:
        return data, []
    return _MARK.sub(b"", data), [int(step) for step in _MARK.findall(data)]
