"""Which rank a job failed by: not the first that ended, but the one that the others lost.

A rank that fails takes its time to end, and the others, which lose it, are often faster. What they
say last names it.
"""

import re
from collections.abc import Callable, Iterable, Sequence

# What errors of the engine say of another rank, as "rank 3 (host-b, tcp) is gone: ...".
_LOST = re.compile(
    r"\brank (\d+)(?: \([^)]*\))?"
    r" (?:is gone|has left|has been silent|has closed|closed group|aborted group|cannot be reached"
    r"|has not (?:sent|received|submitted)|has submitted it but)"
)
_ERROR = re.compile(r"\w(?:Error|Exception|Interrupt)\b")


def lost_by(rank: int, lines: Iterable[str]) -> int | None:
    """Return the rank that a rank says it has lost, the last that its lines name; None: none."""
    named = [int(found[1]) for line in lines for found in _LOST.finditer(line)]
    others = [other for other in named if other != rank]
    return others[-1] if others else None


def telling_line(lines: Sequence[str]) -> str:
    """Return the line that says most of how a rank ended: the last that names an error."""
    said = [line for line in lines if line.strip()]
    errors = [line for line in said if _ERROR.search(line)]
    return next(reversed(errors or said or [""])).strip()


def culprit(first: int, last_lines: Callable[[int], Iterable[str]]) -> int:
    """Return the rank by which a job failed.

    Args:
        first: rank that ended first with an error.
        last_lines: gives what a rank wrote last.

    Whom it lost is asked next, and so on, until one has lost nobody, or one that was asked before.
    """
    rank, asked = first, {first}
    while True:
        other = lost_by(rank, last_lines(rank))
        if other is None or other in asked:
            return rank
        asked.add(other)
        rank = other
