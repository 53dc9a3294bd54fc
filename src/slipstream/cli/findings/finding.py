"""One line of the screen that `slipstream doctor` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "absent", "wrong"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the screen that `slipstream doctor` prints.

    Args:
        topic: Heading under which the finding is shown.
        name: Subject of the finding, such as a library.
        state: Result of the check: `ok`, `absent` for an optional part that is missing, or `wrong`
            for a problem.
        text: Result of the check in words.
        remedy: Advice on how to solve the problem; empty if there is nothing to do.
    """

    topic: str
    name: str
    state: State
    text: str
    remedy: str = ""
