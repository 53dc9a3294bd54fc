"""The open engines of this process, each made by `comm.init()` or by a framework's adapter.

An engine is the C++ object that communicates for one rank. This module has the only list of a
process's engines. Statistics, timelines and logs need such a list, because they cover all engines
of the process.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from slipstream import _core
from slipstream.comm import flight
from slipstream.comm.trace import Bar, TraceFile
from slipstream.errors import ConfigError, reason_of

_TICK_SECONDS = 1.0

_log = logging.getLogger("slipstream.engine")
_lock = threading.Lock()  # guards the next two variables
_open: list[OpenEngine] = []
_traces: dict[Path, TraceFile] = {}  # files of SLIPSTREAM_TIMELINE, shared by successive engines


class OpenEngine:
    """An engine, with a thread that forwards the engine's log and writes its records.

    The records are a timeline, and a flight record after a fault.

    The engine is closed at exit.

    Args:
        runtime: Connected engine.
        rank: Rank of this process in the engine.
        timeline: Path of the timeline, as in SLIPSTREAM_TIMELINE: `{rank}` becomes the rank, and
            without `{rank}` only rank 0 records (default None: no timeline).

    Raises:
        ConfigError: the timeline cannot be written.
    """

    def __init__(self, runtime: _core.Runtime, rank: int, timeline: Path | None = None) -> None:
        self.runtime = runtime
        self.rank = rank
        self.trace: TraceFile | None = None
        self._process = os.getpid()
        self._followers: list[Callable[[], None]] = []
        self._closing = threading.Lock()  # acquired once, by the thread that closes the engine
        self._recording = threading.Lock()  # guards `trace` and the reading of its records
        self._thread = threading.Thread(target=self._forward, name="slipstream-log", daemon=True)
        if timeline is not None and (rank == 0 or "{rank}" in str(timeline)):
            self.record(_trace_for(Path(str(timeline).replace("{rank}", str(rank)))))
        self._alarms = 0  # alarms of the engine for which a flight record was written
        with _lock:
            _open.append(self)
        flight.opened(runtime)
        self._thread.start()

    def is_mine(self) -> bool:
        """Return whether this process itself made the engine; False in a forked child."""
        return os.getpid() == self._process

    def when_closed(self, follow: Callable[[], None]) -> None:
        """Call a function once the engine is closed, in the thread that closes it."""
        self._followers.append(follow)

    def record(self, trace: TraceFile) -> None:
        """Start to write every operation of the engine to the file of a timeline."""
        with self._recording:
            self.trace = trace
            self.runtime.keep_records(True)

    def end_recording(self) -> TraceFile | None:
        """End the timeline: write the last operations to its file, and return the file.

        Return None if no timeline was recorded.
        """
        self._write_records()
        with self._recording:
            trace, self.trace = self.trace, None
            self.runtime.keep_records(False)
        return trace

    def close(self) -> None:
        """Close the engine, and forward the rest of its log.

        The call blocks until the other ranks have all data that they need from this rank, but not
        longer than a few seconds. A second call does nothing. A call in a forked child does
        nothing either, because a forked child owns no engine.
        """
        if not self.is_mine() or not self._closing.acquire(blocking=False):
            return
        self.runtime.close()
        for follow in self._followers:
            follow()
        self._thread.join()
        self._note_alarms()
        flight.closed(self.runtime)
        self.end_recording()
        with _lock:
            _open.remove(self)

    def _forward(self) -> None:
        while True:
            record = self.runtime.next_log(_TICK_SECONDS)
            self._note_alarms()
            if record is not None:
                _log.log(record[0], "rank %d: %s", self.rank, record[1])
                continue
            self._write_records()
            if self._closing.locked():
                return

    def _note_alarms(self) -> None:
        alarms = self.runtime.alarms()
        if alarms != self._alarms:
            self._alarms = alarms
            flight.note_alarms(self.runtime)

    def add_bars(self, process: int, title: str, bars: Sequence[Bar]) -> None:
        """Add bars for activities outside the engine, if a timeline is being recorded."""
        self._write(lambda trace: trace.add_bars(process, title, bars))

    def _write_records(self) -> None:
        self._write(lambda trace: trace.add(self.rank, self.runtime.take_records()))

    def _write(self, write: Callable[[TraceFile], None]) -> None:
        with self._recording:
            if self.trace is None:
                return
            try:
                write(self.trace)
            except OSError as error:  # the job goes on without its timeline
                _log.warning(
                    "rank %d: the timeline ends here, because writing it failed: %s",
                    self.rank,
                    error,
                )
                self.trace = None
                self.runtime.keep_records(False)


def open_engines() -> list[OpenEngine]:
    """Return the open engines of this process; a forked child has none."""
    with _lock:
        return [engine for engine in _open if engine.is_mine()]


def _trace_for(path: Path) -> TraceFile:
    with _lock:
        if path not in _traces:
            try:
                _traces[path] = TraceFile(path)
            except OSError as error:
                raise ConfigError(
                    f"SLIPSTREAM_TIMELINE names {str(path)!r}, which cannot be written:"
                    f" {reason_of(error)}"
                ) from error
        return _traces[path]


@atexit.register
def _close_all() -> None:
    """Close all engines at exit, while their threads can still forward the last log lines."""
    for engine in open_engines():
        engine.close()
