"""The output of the ranks, cut into complete lines; the last lines of each rank are kept."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slipstream.steps import take_steps

NUM_LAST_LINES = 20  # last lines of a rank that are shown if it fails. Chosen by hand.
MAX_LINE_BYTES = 65536  # a longer line is cut, so that a rank cannot fill the memory


class Listener(Protocol):
    """The interface of everything that receives the output of the ranks line by line."""

    def line(self, rank: int, text: str, *, is_error: bool) -> None:
        """Receive a line without its line end."""

    def progress(self, rank: int, text: str) -> None:
        """Receive the current state of a line that the rank keeps overwriting."""

    def step(self, rank: int, number: int) -> None:
        """Receive the number of a step that the rank has reported."""


@dataclass(slots=True)
class LineCutter:
    """Cutter of a stream of bytes into lines.

    Text after a carriage return replaces the text before it, as on a terminal. So a progress bar
    that redraws itself leaves one line with its last state. Marks of steps are taken out.

    Attributes:
        steps: Steps that the bytes of the last call reported.
    """

    _incomplete: bytes = field(default=b"", init=False)
    steps: list[int] = field(default_factory=list[int], init=False)

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that new bytes complete; empty bytes mean the end of the stream."""
        text, self.steps = take_steps(self._incomplete + data)
        *lines, last = text.split(b"\n")
        self._incomplete = _after_return(last)
        if len(self._incomplete) > MAX_LINE_BYTES or not data:
            lines += [self._incomplete] if self._incomplete else []
            self._incomplete = b""
        return [_text(_after_return(line).lstrip(b"\r")) for line in lines]

    @property
    def overwritten(self) -> str | None:
        """The unfinished line if it has a carriage return, as a progress bar has; else None."""
        return _text(self._incomplete.strip(b"\r")) if b"\r" in self._incomplete else None


def _after_return(line: bytes) -> bytes:
    """Return the part of a line that its carriage returns have not overwritten."""
    body = line.rstrip(b"\r")
    start = body.rfind(b"\r")
    ended = line[len(body) :][:1]
    return body[max(start, 0) :] + ended


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").decode(errors="replace")


class Transcript:
    """The output of all ranks: passes lines on to `listener`, and keeps each rank's last lines."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._cutters: defaultdict[tuple[int, bool], LineCutter] = defaultdict(LineCutter)
        self._last: defaultdict[int, deque[str]] = defaultdict(lambda: deque(maxlen=NUM_LAST_LINES))

    def feed(self, rank: int, data: bytes, *, is_error: bool) -> None:
        """Receive bytes of a rank's stream; empty bytes mean the end of the stream."""
        cutter = self._cutters[rank, is_error]
        for text in cutter.feed(data):
            self._last[rank].append(text)
            self._listener.line(rank, text, is_error=is_error)
        for number in cutter.steps:
            self._listener.step(rank, number)
        if cutter.overwritten is not None:
            self._listener.progress(rank, cutter.overwritten)

    def forget(self, rank: int) -> None:
        """Forget the last lines of a rank, because another process takes its place."""
        self._last[rank].clear()

    def last_lines(self, rank: int) -> Sequence[str]:
        """Return the last lines of both streams of a rank, at most twenty."""
        return tuple(self._last[rank])
