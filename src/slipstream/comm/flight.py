"""The flight recorder: after a fault, each rank writes a file that `slipstream explain` reads.

A process has one recorder, which exists while SLIPSTREAM_FLIGHT_DIR names a folder. It writes the
record when a group fails or an operation waits for long, when nobody catches an exception, and
before SIGTERM ends the process. Every write replaces the file, and keeps the earlier occasions.
"""

from __future__ import annotations

import atexit
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TextIO

from slipstream import _core
from slipstream.comm.snapshot import recorded_engine
from slipstream.errors import ConfigError, reason_of
from slipstream.flight import process
from slipstream.flight.codec import write_atomically
from slipstream.flight.files import crash_path, record_path
from slipstream.flight.record import FlightRecord, Occasion, RaisedError, RecordedEngine
from slipstream.flight.size import bounded_text
from slipstream.flight.stacks import error_in_words, stacks_of_threads
from slipstream.settings import Launch, detect_launcher, recorded_environment

# Occasions that a record keeps: the first ones explain more, and the last one tells the end.
_MOST_OCCASIONS = 6
# Longest time for which SIGTERM may be delayed; launchers wait for longer before they kill.
_GRACE_SECONDS = 2.0
# Engines that were closed after a fault and are still recorded.
_MOST_CLOSED = 2

_OCCASIONS = {"failed": "failure", "stalled": "stall", "awaited": "awaited"}

_log = logging.getLogger(__name__)
_lock = (
    threading.RLock()
)  # guards the next variables; reentrant, as a signal may interrupt a writer
_recorder: FlightRecorder | None = None
_occasions: list[Occasion] = []
_runtimes: list[_core.Runtime] = []
_closed: list[RecordedEngine] = []
_seen: dict[int, float] = {}  # by id of the runtime: the time of the last event that is an occasion


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
        self._has_warned = False

    def begin(self) -> None:
        """Remove the files of an earlier job, and let the interpreter write a crash into a file."""
        try:
            record_path(self.folder, self.rank).unlink(missing_ok=True)
            if not faulthandler.is_enabled():
                self.folder.mkdir(parents=True, exist_ok=True)
                self._crash = crash_path(self.folder, self.rank).open("w")
                faulthandler.enable(self._crash)
            # Python code that is first executed by a hook, such as an import, would make the
            # interpreter forget that Ctrl-C ends the process, and the exit code would be wrong.
            stacks_of_threads()
            bounded_text(_record(self.rank, self.world_size))
        except OSError as error:
            self._warn(error)

    def write(self) -> None:
        """Write the record; a failure is logged, because the program must go on."""
        record = _record(self.rank, self.world_size)
        try:
            write_atomically(record_path(self.folder, self.rank), bounded_text(record))
        except OSError as error:
            self._warn(error)

    def end(self) -> None:
        """Remove the file for a crash, which has not happened, and the folder if it is empty."""
        if self._crash is None:
            return
        faulthandler.disable()
        self._crash.close()
        self._crash = None
        try:
            crash_path(self.folder, self.rank).unlink(missing_ok=True)
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
        _add(_OCCASIONS[news[0].kind], "\n".join(each.text for each in news))
        recorder.write()


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
        write_atomically(target, bounded_text(_record(rank, world_size)))
    return target


def _record(rank: int, world_size: int) -> FlightRecord:
    clock = process.clock_reading()
    live = tuple(recorded_engine(runtime, clock) for runtime in _runtimes)
    return FlightRecord(
        rank=rank,
        world_size=world_size,
        host=socket.gethostname(),
        pid=os.getpid(),
        command=process.command_of_process(),
        started=process.start_of_process(),
        clock=clock,
        occasions=tuple(_occasions),
        engines=(*_closed, *live),
        versions=process.versions(),
        load=process.load_averages(),
        memory=process.memory_reading(),
        environment=recorded_environment(),
    )


def _add(kind: str, text: str, error: RaisedError | None = None) -> None:
    clock = process.clock_reading()
    _occasions.append(
        Occasion(
            kind=kind,
            text=text,
            at=clock.monotonic,
            wall=clock.wall,
            error=error,
            stacks=stacks_of_threads(),
        )
    )
    if len(_occasions) > _MOST_OCCASIONS:
        del _occasions[-2]


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
            recorder.write()
    except Exception:  # noqa: BLE001 - a fault of the recorder must not hide the fault of the program
        _log.exception("rank %d: the flight record could not be written", recorder.rank)


# ---- exceptions and signals ----

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def _chained(previous: Hook) -> Hook:
    def hook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> object:
        words = error_in_words(kind, error, trace)
        _note("exception", f"{words.type}: {words.message}", words)
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
    descriptor = _core.delay_end_by_signal(signal.SIGTERM, _GRACE_SECONDS)
    if descriptor >= 0:
        threading.Thread(
            target=_await_sigterm, args=(descriptor,), name="slipstream-flight", daemon=True
        ).start()


def _await_sigterm(descriptor: int) -> None:
    os.read(descriptor, 8)
    try:
        _note("signal", "SIGTERM ended this process")
        _end()
    finally:
        _core.end_by_signal(signal.SIGTERM)


@atexit.register
def _end() -> None:
    recorder = _mine()
    if recorder is not None:
        recorder.end()
