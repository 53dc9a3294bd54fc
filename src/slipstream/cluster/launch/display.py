"""The displays of a job: on a terminal, in a log file, or as a stream of JSON events."""

import json
import sys
import time
from dataclasses import asdict
from typing import Literal, TextIO

from rich.cells import set_cell_size
from rich.color import ColorSystem
from rich.style import Style

from slipstream.cluster.launch.labels import Labels
from slipstream.cluster.launch.launcher import Failure
from slipstream.cluster.launch.outlet import Outlet

OutputMode = Literal["all", "rank0", "failed"]

_RANK_STYLES = tuple(
    Style(color=name) for name in ("cyan", "green", "magenta", "yellow", "blue", "bright_black")
)
_NOTE_STYLE = Style(bold=True)
_FAILURE_STYLE = Style(color="red", bold=True)

ERASE_LINE = "\r\x1b[K"


class TerminalDisplay:
    """A display that writes complete output lines, each after the number of its rank.

    Args:
        labels: Labels of the ranks, or the host name of each rank.
        out: Stream for the standard output of the ranks.
        err: Stream for the standard error of the ranks, and for the launcher's remarks.
        mode: Ranks whose lines are shown during the run: "all", "rank0", or "failed" for no rank.
            The last lines of a failed rank are always shown.
        color: Whether the numbers of ranks and the launcher's remarks are coloured on a terminal.
    """

    def __init__(
        self, labels: Labels | list[str], out: TextIO, err: TextIO, *, mode: OutputMode, color: bool
    ) -> None:
        self._out = Outlet(
            out, lambda why: self.note(f"the output cannot be shown any more: {why}")
        )
        self._err = Outlet(err, lambda _: None)
        self._mode = mode
        self._color = color
        self._labels = labels if isinstance(labels, Labels) else Labels(labels)
        self._progress = ""

    def line(self, rank: int, text: str, *, is_error: bool) -> None:
        """Show a line that a rank has printed."""
        if self._shows(rank):
            stream = self._err if is_error else self._out
            self._write(stream, self._prefix(rank, stream) + text)

    def progress(self, rank: int, text: str) -> None:
        """Show the progress line of rank 0 at the bottom of a terminal; ignore other ranks."""
        if rank == 0 and self._shows(rank) and self._err.isatty():
            room = max(self._err.columns() - self._labels.width - 1, 1)
            shown = set_cell_size(text, room).rstrip()
            self._progress = self._prefix(rank, self._err) + shown
            self._err.write(ERASE_LINE + self._progress)

    def step(self, rank: int, number: int) -> None:
        """Show nothing; the head of a run watches the steps."""

    @property
    def has_no_reader(self) -> bool:
        """Whether the output is a pipe that nobody reads any more."""
        return self._out.has_no_reader

    def started(self, rank: int, host: str, pid: int) -> None:
        """Show nothing."""

    def named(self, rank: int, host: str, first_rank: int | None) -> None:
        """Use another label for the next process of a slot."""
        self._labels.name(rank, host, first_rank)

    def running(self, count: int) -> None:
        """Show nothing, because the remarks of the launcher name the number."""

    def exited(self, rank: int, host: str, status: int) -> None:
        """Erase the progress line of rank 0 if that rank has ended."""
        if rank == 0 and self._progress:
            self._err.write(ERASE_LINE)
            self._progress = ""

    def note(self, text: str) -> None:
        """Show a remark of the launcher."""
        self._write(self._err, self._paint(f"slipstream: {text}", _NOTE_STYLE, self._err))

    def finished(self, failure: Failure | None) -> None:
        """Show the failure of the job, with the last lines of the failed rank."""
        if failure is None:
            return
        name = "" if failure.rank is None else self._labels.who(failure.rank)
        who = f"{name} on {failure.host}" if name else failure.host
        if failure.after_signal:
            self.note(
                f"the job ended after {failure.after_signal}; {who} ended first: {failure.reason}"
            )
            return
        head = f"slipstream: {who} failed first, after {failure.seconds:.1f} s: {failure.reason}"
        self._write(self._err, self._paint(head, _FAILURE_STYLE, self._err))
        if failure.last_lines:
            self._write(self._err, f"  last lines of {name}:")
        for text in failure.last_lines:
            self._write(self._err, f"    {text}")
        for other in failure.others:
            line = f": {other.said}" if other.said else ""
            summary = f"rank {other.rank} on {other.host} failed too, {other.reason}{line}"
            self._write(self._err, f"  {summary}")

    def _shows(self, rank: int) -> bool:
        return self._mode == "all" or (self._mode == "rank0" and rank == 0)

    def _prefix(self, rank: int, stream: Outlet) -> str:
        return self._paint(
            self._labels.prefix(rank), _RANK_STYLES[rank % len(_RANK_STYLES)], stream
        )

    def _paint(self, text: str, style: Style, stream: Outlet) -> str:
        is_colored = self._color and stream.isatty()
        return style.render(text, color_system=ColorSystem.STANDARD if is_colored else None)

    def _write(self, stream: Outlet, text: str) -> None:
        if self._progress:
            self._err.write(ERASE_LINE)
        stream.write(text + "\n")
        if self._progress:
            self._err.write(self._progress)


class JsonDisplay:
    """A display that writes a JSON object per event: started, line, exited, note, finished.

    Each has its `time` in seconds since 1970.

    In an elastic job, events name the `slot` of a process. The `rank` is the one with which the
    process started, and null if it joined the job. Events `running` have the number of processes.

    Args:
        out: Stream for the events.
        mode: Ranks whose lines become events: "all", "rank0", or "failed" for no rank.
    """

    def __init__(self, out: TextIO, *, mode: OutputMode) -> None:
        self._out = Outlet(out, lambda why: print(f"no more events: {why}", file=sys.stderr))
        self._mode = mode
        self._first_ranks: dict[int, int | None] = {}

    def line(self, rank: int, text: str, *, is_error: bool) -> None:
        """Report a line that a rank has printed."""
        if self._mode == "all" or (self._mode == "rank0" and rank == 0):
            stream = "stderr" if is_error else "stdout"
            self.event("line", **self._who(rank), stream=stream, text=text)

    def progress(self, rank: int, text: str) -> None:
        """Report nothing; when a progress line ends, `line` reports its last state."""

    def step(self, rank: int, number: int) -> None:
        """Report nothing; the head of a run watches the steps."""

    @property
    def has_no_reader(self) -> bool:
        """Whether the events go to a pipe that nobody reads any more."""
        return self._out.has_no_reader

    def started(self, rank: int, host: str, pid: int) -> None:
        """Report that a rank has started."""
        self.event("started", **self._who(rank), host=host, pid=pid)

    def named(self, rank: int, host: str, first_rank: int | None) -> None:
        """Take note of the first rank of a slot's next process."""
        self._first_ranks[rank] = first_rank

    def running(self, count: int) -> None:
        """Report the number of processes."""
        self.event("running", count=count)

    def exited(self, rank: int, host: str, status: int) -> None:
        """Report that a rank has ended."""
        self.event("exited", **self._who(rank), host=host, status=status)

    def note(self, text: str) -> None:
        """Report a remark of the launcher."""
        self.event("note", text=text)

    def finished(self, failure: Failure | None) -> None:
        """Report how the job ended."""
        fields = None if failure is None else asdict(failure)
        if fields is not None and failure is not None and failure.rank is not None:
            fields |= self._who(failure.rank)
        self.event("finished", failure=fields)

    def _who(self, number: int) -> dict[str, int | None]:
        if number in self._first_ranks:
            return {"slot": number, "rank": self._first_ranks[number]}
        return {"rank": number}

    def event(self, event: str, **fields: object) -> None:
        """Write an event, with its time in seconds since 1970."""
        self._out.write(
            json.dumps({"event": event, "time": round(time.time(), 3), **fields}) + "\n"
        )
