"""Bytes of several ranks as whole lines, with the last ones of each rank remembered."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

NUM_LAST_LINES = 20
MAX_LINE_BYTES = 65536  # a longer line is cut, so that a rank cannot fill the memory


class Listener(Protocol):
    """Gets what the ranks write, line by line."""

    def line(self, rank: int, text: str, *, is_error: bool) -> None:
        """Take a line without its end."""

    def progress(self, rank: int, text: str) -> None:
        """Take the present state of a line that the rank keeps overwriting."""


@dataclass(slots=True)
class LineCutter:
    """Cuts a stream of bytes in lines.

    A carriage return starts the line anew, as on a terminal, so of a progress bar that redraws
    itself one line remains, its last state.
    """

    _rest: bytes = field(default=b"", init=False)

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that these bytes complete; no bytes mean the end of the stream."""
        *whole, rest = (self._rest + data).split(b"\n")
        self._rest = _after_return(rest)
        if len(self._rest) > MAX_LINE_BYTES or not data:
            whole += [self._rest] if self._rest else []
            self._rest = b""
        return [_text(_after_return(line).lstrip(b"\r")) for line in whole]

    @property
    def overwritten(self) -> str | None:
        """The line so far if it began with a carriage return, which says that it will change."""
        return _text(self._rest.strip(b"\r")) if b"\r" in self._rest else None


def _after_return(line: bytes) -> bytes:
    """Drop what carriage returns have overwritten; what follows the last one counts, if any."""
    body = line.rstrip(b"\r")
    start = body.rfind(b"\r")
    ended = line[len(body) :][:1]
    return body[max(start, 0) :] + ended


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").decode(errors="replace")


class Transcript:
    """Cuts the output of all ranks in lines, hands them on, and remembers the last of each rank."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._cutters: defaultdict[tuple[int, bool], LineCutter] = defaultdict(LineCutter)
        self._last: defaultdict[int, deque[str]] = defaultdict(lambda: deque(maxlen=NUM_LAST_LINES))

    def feed(self, rank: int, data: bytes, *, is_error: bool) -> None:
        """Take bytes of a rank; no bytes mean the end of that stream."""
        cutter = self._cutters[rank, is_error]
        for text in cutter.feed(data):
            self._last[rank].append(text)
            self._listener.line(rank, text, is_error=is_error)
        if cutter.overwritten is not None:
            self._listener.progress(rank, cutter.overwritten)

    def last_lines(self, rank: int) -> Sequence[str]:
        """Return the last lines of a rank, of both its streams, at most twenty."""
        return tuple(self._last[rank])
