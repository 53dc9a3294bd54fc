"""Search for the rank that made a job fail.

A failing rank takes some time to end. Ranks that lose their connection to a failing rank often end
earlier, and the last lines of their output name the failing rank. So the search follows the names
of lost ranks in the last lines of output.
"""

import re
from collections.abc import Callable, Iterable, Sequence

# The engine's errors about another rank, such as "rank 3 (host-b, tcp) is gone: ...".
_LOST = re.compile(
    r"\brank (\d+)(?: \([^)]*\))?"
    r" (?:is gone|has left|has been silent|has closed|closed group|aborted group|cannot be reached"
    r"|ha(?:s|ve) not (?:sent|received|submitted)|ha(?:s|ve) submitted it, but)"
)
_ERROR = re.compile(r"\w(?:Error|Exception|Interrupt)\b")
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")


def lost_by(rank: int, lines: Iterable[str]) -> int | None:
    """Return the last rank that the output of `rank` reports as lost, or None."""
    named = [int(match[1]) for line in lines for match in _LOST.finditer(line)]
    others = [other for other in named if other != rank]
    return others[-1] if others else None


def own_error(lines: Sequence[str]) -> str:
    """Return the error of the program in its last lines, without numbers, which may differ.

    Returns:
        The last line that names an error; "" if there is none, or if the lines name a lost rank,
        because then the error is a consequence.
    """
    errors = [line.strip() for line in lines if _ERROR.search(line)]
    is_consequence = any(map(_LOST.search, lines))
    return _NUMBER.sub("N", errors[-1]) if errors and not is_consequence else ""


def telling_line(lines: Sequence[str]) -> str:
    """Return the line that best explains a rank's end: the last line that names an error."""
    printed = [line for line in lines if line.strip()]
    errors = [line for line in printed if _ERROR.search(line)]
    return next(reversed(errors or printed or [""])).strip()


def culprit(first: int, last_lines: Callable[[int], Iterable[str]]) -> int:
    """Return the rank that made a job fail.

    The search begins at `first` and moves on to the rank that the current rank reports as lost. The
    search ends at a rank that reports no lost rank, or whose lost rank was visited before.

    Args:
        first: First rank that ended with an error.
        last_lines: Function that returns the last lines of a rank's output.
    """
    rank, visited = first, {first}
    while True:
        other = lost_by(rank, last_lines(rank))
        if other is None or other in visited:
            return rank
        visited.add(other)
        rank = other
