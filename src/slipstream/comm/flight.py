"""The flight recorder: after a fault, each rank writes a file that `slipstream explain` reads.

A process has one recorder, which exists while SLIPSTREAM_FLIGHT_DIR names a folder. It writes the
record when a group fails or an operation waits for long, when nobody catches an exception, and
before SIGTERM ends the process. Every write replaces the file, and keeps the earlier occasions.

In an elastic job, the recorder has a span for each epoch, with a file of its own. The file of an
epoch is written some time after its fault, so that the survivors recover first.
"""

from __future__ import annotations

import atexit
import faulthandler
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TextIO

from slipstream import _core
from slipstream.comm.snapshot import recorded_engine
from slipstream.errors import ConfigError, reason_of
from slipstream.flight import process
from slipstream.flight.codec import write_atomically
from slipstream.flight.epochs import EpochView
from slipstream.flight.files import crash_path, drop_excess, epoch_crash_path, record_path
from slipstream.flight.record import (
    FlightRecord,
    Occasion,
    RaisedError,
    RecordedEngine,
    RecordedEvent,
)
from slipstream.flight.size import bounded_text
from slipstream.flight.stacks import error_in_words, stacks_of_threads
from slipstream.settings import Launch, detect_launcher, recorded_environment

# Occasions that a record keeps: the first ones explain more, and the last one tells the end.
_MOST_OCCASIONS = 6
# Longest time for which SIGTERM may be delayed; launchers wait for longer before they kill.
_GRACE_SECONDS = 2.0
# Engines that were closed after a fault and are still recorded.
_MOST_CLOSED = 2
# Epochs whose faults may still be recorded.
_MOST_SPANS = 4
# Time from a fault in an elastic job to the writing of its record.
_DELAY_SECONDS = 1.0

_OCCASIONS = {"failed": "failure", "stalled": "stall", "awaited": "awaited"}

_log = logging.getLogger(__name__)
_lock = (
    threading.RLock()
)  # guards the next variables; reentrant, as a signal may interrupt a writer
_recorder: FlightRecorder | None = None
_runtimes: list[_core.Runtime] = []
_closed: list[RecordedEngine] = []
_sigterm: tuple[int, threading.Thread] | None = None  # what is readable once it came; who ends
_seen: dict[int, float] = {}  # by id of the runtime: the time of the last event that is an occasion


@dataclass(slots=True)
class Span:
    """A time whose faults make one record: an epoch, or all the time in a job that is not elastic.

    Args:
        view: Epoch, or None.
        runtime: Engine of the epoch, or None.

    Attributes:
        occasions: Reasons to write a record.
        engine: State of the engine at the last of them, or None.
        ended: Time at which the next epoch was entered, on the monotonic clock.
        followed_by: Number of that epoch, or 0.
        is_due: Whether a record must still be written.
    """

    view: EpochView | None = None
    runtime: _core.Runtime | None = None
    occasions: list[Occasion] = field(default_factory=list[Occasion])
    engine: RecordedEngine | None = None
    ended: float = float("inf")
    followed_by: int = 0
    is_due: bool = False


_spans: list[Span] = [Span()]  # guarded by _lock, too


class FlightRecorder:
    """The files of this process in the folder of flight records.

    Args:
        folder: Folder for the files.
        rank: Rank of this process in the job.
        world_size: Number of ranks of the job.
    """

    def __init__(self, folder: Path, rank: int, world_size: int) -> None:
        self.folder = folder
        self.rank = rank
        self.world_size = world_size
        self.process = os.getpid()
        self._crash: TextIO | None = None
        self._crash_path = crash_path(folder, rank)
        self._has_warned = False

    def begin(self) -> None:
        """Remove the files of an earlier job, and let the interpreter write a crash into a file."""
        try:
            record_path(self.folder, self.rank).unlink(missing_ok=True)
            if not faulthandler.is_enabled():
                self.folder.mkdir(parents=True, exist_ok=True)
                self._crash = self._crash_path.open("w")
                faulthandler.enable(self._crash)
            # Python code that is first executed by a hook, such as an import, would make the
            # interpreter forget that Ctrl-C ends the process, and the exit code would be wrong.
            stacks_of_threads()
            bounded_text(_record(self.rank, self.world_size, _spans[-1]))
        except OSError as error:
            self._warn(error)

    def write(self, span: Span) -> None:
        """Write the record of a span; a failure is logged, because the program must go on."""
        span.is_due = False
        record = _record(self.rank, self.world_size, span)
        folder = self.folder if span.view is None else self.folder / span.view.folder
        try:
            write_atomically(record_path(folder, record.rank), bounded_text(record))
            if span.view is not None:
                drop_excess(self.folder)
        except OSError as error:
            self._warn(error)

    def enter(self, view: EpochView) -> None:
        """Give the file for a crash the name of an epoch."""
        if self._crash is None:
            return
        path = epoch_crash_path(self.folder, view.folder, view.rank)
        try:
            self._crash_path.rename(path)
        except OSError as error:
            self._warn(error)
        else:
            self._crash_path = path

    def end(self) -> None:
        """Remove the file for a crash, which has not happened, and the folder if it is empty."""
        if self._crash is None:
            return
        faulthandler.disable()
        self._crash.close()
        self._crash = None
        try:
            self._crash_path.unlink(missing_ok=True)
            self.folder.rmdir()
        except OSError:  # other ranks have files there
            return

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "rank %d writes no flight record, because SLIPSTREAM_FLIGHT_DIR=%s cannot be"
                " written: %s",
                self.rank,
                self.folder,
                reason_of(error),
            )


def arm(folder: Path | None, rank: int, world_size: int) -> None:
    """Start to record faults of this process; a second call changes nothing.

    Args:
        folder: Folder for the record, or None to record nothing.
        rank: Rank of this process in the world that it joins; the launcher's rank comes first.
        world_size: Number of ranks of that world.
    """
    global _recorder
    if folder is None:
        return
    with _lock:
        if _recorder is not None and _recorder.process == os.getpid():
            return
        launch = _launch()
        if launch is not None and launch.world_size > 1:
            rank, world_size = launch.rank, launch.world_size
        _recorder = FlightRecorder(folder.absolute(), rank, world_size)
        _recorder.begin()
    sys.excepthook = _chained(sys.excepthook)
    threading.excepthook = _chained_in_threads(threading.excepthook)
    _catch_sigterm()


def opened(runtime: _core.Runtime) -> None:
    """Include an engine in later records."""
    with _lock:
        _runtimes.append(runtime)


def closed(runtime: _core.Runtime) -> None:
    """Keep the last state of an engine that had a fault; forget another engine."""
    with _lock:
        if runtime not in _runtimes:
            return
        _runtimes.remove(runtime)
        if _seen.pop(id(runtime), None) is not None:
            _closed.append(recorded_engine(runtime, process.clock_reading(), is_open=False))
            del _closed[:-_MOST_CLOSED]


def note_alarms(runtime: _core.Runtime) -> None:
    """Write a record if the engine has new events that a user may want explained."""
    recorder = _mine()
    if recorder is None:
        return
    with _lock:
        last = _seen.get(id(runtime), -1.0)
        engine = recorded_engine(runtime, process.clock_reading())
        news = [each for each in engine.events if each.kind in _OCCASIONS and each.at > last]
        if not news:
            return
        _seen[id(runtime)] = news[-1].at
        span = _span_of(runtime, news[0])
        if span.runtime is runtime:
            span.engine = engine
        _add(_OCCASIONS[news[0].kind], "\n".join(each.text for each in news), span=span)
        if span.view is None:
            recorder.write(span)
        else:
            _write_later(span)


def entered(runtime: _core.Runtime, view: EpochView) -> None:
    """Begin the record of the next epoch of an elastic job; later faults belong to it."""
    recorder = _mine()
    if recorder is None:
        return
    with _lock:
        last = _spans[-1]
        last.ended, last.followed_by = view.began or process.clock_reading().monotonic, view.number
        if last.occasions and last.view is not None:
            _write_later(last)
        _spans.append(Span(view=view, runtime=runtime))
        if len(_spans) > _MOST_SPANS:
            oldest = _spans.pop(0)
            if oldest.is_due:
                recorder.write(oldest)
        recorder.enter(view)


def _span_of(runtime: _core.Runtime, event: RecordedEvent) -> Span:
    """Return the span to which an event of an engine belongs."""
    newest = _spans[-1]
    for span in reversed(_spans):
        view = span.view
        if span.runtime is not runtime or view is None:
            continue
        newest = span
        if view.began <= event.at and not view.is_of_another(event.group):
            return span
    return newest


def _write_later(span: Span) -> None:
    """Write the record of an epoch soon; the survivors need the time until then to recover."""
    if not any(each.is_due for each in _spans):
        timer = threading.Timer(_DELAY_SECONDS, _write_due)
        timer.daemon = True
        timer.start()
    span.is_due = True


def _write_due() -> None:
    recorder = _mine()
    if recorder is None:
        return
    with _lock:
        for span in _spans:
            if span.is_due:
                recorder.write(span)


def note_abort(reason: str) -> None:
    """Note that this rank is about to abort a group, and where."""
    _note("abort", f"this rank aborted a group: {reason}")


def write_flight_record(path: str | Path) -> Path:
    """Write the flight record of this rank: its last operations, its peers and its stacks.

    Other ranks are not asked. `slipstream explain` reads the records in a folder.

    Args:
        path: File for the record if the name ends with ".json", otherwise a folder, in which the
            file gets the name of the rank. Folders are made if they are missing.

    Returns:
        The path of the file.

    Raises:
        OSError: the file cannot be written.
    """
    recorder, launch = _mine(), _launch()
    if recorder is not None:
        rank, world_size = recorder.rank, recorder.world_size
    elif launch is not None:
        rank, world_size = launch.rank, launch.world_size
    else:
        rank, world_size = 0, 1
    target = Path(path)
    if target.suffix != ".json":
        target = record_path(target, rank)
    with _lock:
        _add("request", "the program asked for this record")
        write_atomically(target, bounded_text(_record(rank, world_size, _spans[-1])))
    return target


def _record(rank: int, world_size: int, span: Span) -> FlightRecord:
    clock, view = process.clock_reading(), span.view
    if view is not None:
        rank, world_size = view.rank, len(view.numbers)
    return FlightRecord(
        rank=rank,
        world_size=world_size,
        host=socket.gethostname(),
        pid=os.getpid(),
        command=process.command_of_process(),
        started=process.start_of_process(),
        clock=clock,
        occasions=tuple(span.occasions),
        engines=_engines(span),
        versions=process.versions(),
        load=process.load_averages(),
        memory=process.memory_reading(),
        environment=recorded_environment(),
        epoch=None if view is None else view.recorded(span.followed_by),
    )


def _engines(span: Span) -> tuple[RecordedEngine, ...]:
    """Return the engines of a record; that of an epoch has only the engine of the epoch."""
    if span.view is None:
        clock = process.clock_reading()
        return (*_closed, *(recorded_engine(runtime, clock) for runtime in _runtimes))
    return () if span.engine is None else (span.view.of(span.engine, span.ended),)


def _add(kind: str, text: str, error: RaisedError | None = None, span: Span | None = None) -> None:
    """Add an occasion to a span (default: the newest one, whose engine is read)."""
    clock = process.clock_reading()
    if span is None:
        span = _spans[-1]
        if span.runtime is not None:
            span.engine = recorded_engine(span.runtime, clock)
    occasions = span.occasions
    occasions.append(
        Occasion(
            kind=kind,
            text=text,
            at=clock.monotonic,
            wall=clock.wall,
            error=error,
            stacks=stacks_of_threads(),
        )
    )
    if len(occasions) > _MOST_OCCASIONS:
        del occasions[-2]


def _mine() -> FlightRecorder | None:
    """Return the recorder that this process itself has made; a forked child has none."""
    recorder = _recorder
    return recorder if recorder is not None and recorder.process == os.getpid() else None


def _launch() -> Launch | None:
    """Return the rank that the launcher gave to this process; None if its variables are wrong."""
    try:
        return detect_launcher()
    except ConfigError:
        return None


def _note(kind: str, text: str, error: RaisedError | None = None) -> None:
    recorder = _mine()
    if recorder is None:
        return
    try:
        with _lock:
            _add(kind, text, error)
            recorder.write(_spans[-1])
            _write_due()
    except Exception:  # noqa: BLE001 - a fault of the recorder must not hide the fault of the program
        _log.exception("rank %d: the flight record could not be written", recorder.rank)


# ---- exceptions and signals ----

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def _chained(previous: Hook) -> Hook:
    def hook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> object:
        with _lock:  # the thread that SIGTERM wakes ends this process after this note
            words = error_in_words(kind, error, trace)
            occasion = "ending" if _is_ending() else "exception"
            _note(occasion, f"{words.type}: {words.message}", words)
        _wait_if_ending()
        return previous(kind, error, trace)

    return hook


def _chained_in_threads(
    previous: Callable[[threading.ExceptHookArgs], object],
) -> Callable[[threading.ExceptHookArgs], object]:
    def hook(args: threading.ExceptHookArgs) -> object:
        if not issubclass(args.exc_type, SystemExit):
            words = error_in_words(args.exc_type, args.exc_value, args.exc_traceback)
            name = args.thread.name if args.thread is not None else "a thread"
            _note("exception", f"{words.type} in {name}: {words.message}", words)
        return previous(args)

    return hook


def _catch_sigterm() -> None:
    """Let a thread write a record before SIGTERM ends this process, if no handler is set."""
    global _sigterm
    descriptor = _core.delay_end_by_signal(signal.SIGTERM, _GRACE_SECONDS)
    if descriptor >= 0:
        thread = threading.Thread(
            target=_await_sigterm, args=(descriptor,), name="slipstream-flight", daemon=True
        )
        _sigterm = (descriptor, thread)
        thread.start()


def _await_sigterm(descriptor: int) -> None:
    _has_come(descriptor, None)
    try:
        _note("signal", "SIGTERM ended this process")
        _end()
    finally:
        _core.end_by_signal(signal.SIGTERM)


def _has_come(descriptor: int, seconds: float | None) -> bool:
    """Return whether SIGTERM has come, at the latest after some seconds; None waits for it."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if seconds is None else seconds * 1000))


def _is_ending() -> bool:
    """Return whether SIGTERM has come and will end this process."""
    return _sigterm is not None and _mine() is not None and _has_come(_sigterm[0], 0)


def _wait_if_ending() -> None:
    """Let SIGTERM end this process if it has come: an error is then a consequence of the end."""
    if _sigterm is not None and _is_ending():
        _sigterm[1].join(_GRACE_SECONDS)


@atexit.register
def _end() -> None:
    recorder = _mine()
    if recorder is not None:
        _write_due()
        recorder.end()
