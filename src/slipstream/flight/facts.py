"""What the records tell about each rank: where it was, and how it ended."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slipstream.flight.folder import Evidence
from slipstream.flight.launcher import RankEnd
from slipstream.flight.record import (
    FlightRecord,
    Occasion,
    RaisedError,
    RecordedEngine,
    RecordedEvent,
    RecordedOperation,
    StackLine,
)

_MAIN = "MainThread"
# Functions in which Python runs a script, and a module (python -m).
_OUTERMOST = ("<module>", "_run_module_as_main")
# Signals with which the kernel or the C library ends a program that has a bug.
CRASH_SIGNALS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """What is known of one rank.

    Args:
        rank: Rank of the process.
        host: Name of its host, or "".
        pid: Number of the process, or None.
        record: Record of the rank, or None if it has written none.
        engine: Engine that explains most, or None.
        end: End of the rank as the launcher saw it, or None.
        crash: Stacks at a fatal signal, or "".
    """

    rank: int
    host: str
    pid: int | None
    record: FlightRecord | None
    engine: RecordedEngine | None
    end: RankEnd | None
    crash: str

    @property
    def name(self) -> str:
        """The rank with its host and process number, such as "rank 1 (host a, process 17)"."""
        parts = [f"host {self.host}"] if self.host else []
        parts += [f"process {self.pid}"] if self.pid is not None else []
        return f"rank {self.rank}" + (f" ({', '.join(parts)})" if parts else "")

    @property
    def went_on_in(self) -> int:
        """Number of the epoch in which the rank went on after the fault, or 0."""
        epoch = None if self.record is None else self.record.epoch
        return 0 if epoch is None else epoch.followed_by

    @property
    def occasions(self) -> Sequence[Occasion]:
        """Occasions of the record, the oldest first."""
        return () if self.record is None else self.record.occasions

    @property
    def events(self) -> Sequence[RecordedEvent]:
        """Events of the engine, the oldest first."""
        return () if self.engine is None else self.engine.events

    @property
    def exception(self) -> Occasion | None:
        """The first exception that nobody caught, as the occasion of a record."""
        return next((each for each in self.occasions if each.kind == "exception"), None)

    @property
    def own_error(self) -> RaisedError | None:
        """The exception that nobody caught, if it explains a fault of this very rank.

        An exception of communication, Ctrl-C, and an exception after a group had failed are
        consequences of faults elsewhere.
        """
        occasion = self.exception
        if occasion is None or occasion.error is None or occasion.error.is_communication:
            return None
        if occasion.error.type == "KeyboardInterrupt":
            return None
        earlier = self.failure
        return None if earlier is not None and earlier.at < occasion.at else occasion.error

    @property
    def failure(self) -> RecordedEvent | None:
        """The first failure of a group on this rank."""
        return next((each for each in self.events if each.kind == "failed"), None)

    @property
    def signal(self) -> str:
        """Name of the signal that ended the rank by itself, such as "SIGKILL"; or ""."""
        end = self.end
        if end is None or end.status is None or end.status >= 0 or end.by_launcher:
            return ""
        return name_of_signal(-end.status)

    @property
    def finished(self) -> RecordedOperation | None:
        """The last operation that ended well."""
        operations = () if self.engine is None else self.engine.operations
        return next((each for each in reversed(operations) if each.state == "done"), None)

    @property
    def waiting(self) -> RecordedOperation | None:
        """The first operation that was in flight, or that a failure has ended."""
        operations = () if self.engine is None else self.engine.operations
        return next((each for each in operations if each.state != "done"), None)

    @property
    def place(self) -> StackLine | None:
        """The innermost call outside libraries, in an exception or else in the main thread."""
        errors = (each.error for each in self.occasions if each.error is not None)
        for error in errors:
            return innermost(error.lines)
        return next(filter(None, (main_place(each) for each in self.occasions)), None)


def facts_of(evidence: Evidence) -> dict[int, RankFacts]:
    """Return what is known of each rank of the job."""
    return {
        rank: RankFacts(
            rank=rank,
            host=evidence.host_of(rank),
            pid=evidence.pid_of(rank),
            record=evidence.records.get(rank),
            engine=evidence.engine_of(rank),
            end=evidence.end_of(rank),
            crash=evidence.crashes.get(rank, ""),
        )
        for rank in range(evidence.world_size)
    }


def main_place(occasion: Occasion) -> StackLine | None:
    """Return the innermost call outside libraries of the main thread at an occasion.

    A main thread that had left the program, and ran a hook of the interpreter, is in no place.
    """
    for stack in occasion.stacks:
        if stack.name == _MAIN and stack.lines:
            place = innermost(stack.lines)
            if place and (not place.is_library or stack.lines[0].function in _OUTERMOST):
                return place
    return None


def innermost(lines: Sequence[StackLine]) -> StackLine | None:
    """Return the innermost call outside libraries; the innermost call if there is none."""
    own = [line for line in lines if not line.is_library]
    return next(reversed(own or list(lines)), None)


def name_of_signal(number: int) -> str:
    """Return the name of a signal, such as "SIGKILL"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---- words ----


def capital(text: str) -> str:
    """Return a text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def first_line(text: str) -> str:
    """Return the first line of a text; "" if it has none."""
    return text.partition("\n")[0]


def place_in_words(line: StackLine | None) -> str:
    """Return a place in a script, such as "train.py:41 (load)"; "" for None."""
    return "" if line is None else f"{short_path(line.file)}:{line.line} ({line.function})"


def short_path(path: str) -> str:
    """Return the last two parts of a path."""
    return "/".join(path.split("/")[-2:]) if path.startswith("/") else path


def operation_in_words(operation: RecordedOperation) -> str:
    """Return an operation with its number, such as "allreduce 'x' (operation 5 of 'world')"."""
    if operation.collective in ("send", "receive"):
        return f"{operation.title} of group '{operation.group}'"
    return f"{operation.title} (operation {operation.sequence} of group '{operation.group}')"


def ranks_in_words(ranks: Iterable[int]) -> str:
    """Return ranks in words, such as "rank 3" or "ranks 0-2, 5"."""
    ordered = sorted(set(ranks))
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [
        str(low) if low == high else f"{low}{'-' if high > low + 1 else ', '}{high}"
        for low, high in runs
    ]
    return f"rank{'s' * (len(ordered) > 1)} {', '.join(texts)}"
