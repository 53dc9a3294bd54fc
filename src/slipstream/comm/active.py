"""The engines of this process that are open, whoever made them: `comm.init()` or an adapter.

The one registry of the process, at its edge: stats, timelines and the engine's log are for people
who look at the process as a whole.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from slipstream import _core
from slipstream.comm.trace import Bar, TraceFile
from slipstream.errors import ConfigError

_TICK_SECONDS = 1.0

_log = logging.getLogger("slipstream.engine")
_lock = threading.Lock()  # guards the two below
_open: list[OpenEngine] = []
_traces: dict[Path, TraceFile] = {}  # that SLIPSTREAM_TIMELINE named; engines in turn share one


class OpenEngine:
    """An engine and the thread that passes on its log and timeline; it is closed at exit at last.

    Args:
        runtime: Connected engine.
        rank: Rank of this process in the engine.
        timeline: Path of the file to record to, as in SLIPSTREAM_TIMELINE: `{rank}` becomes the
            rank; without it only rank 0 records. None records nothing.

    Raises:
        ConfigError: that file cannot be written.
    """

    def __init__(self, runtime: _core.Runtime, rank: int, timeline: Path | None = None) -> None:
        self.runtime = runtime
        self.rank = rank
        self.trace: TraceFile | None = None
        self._process = os.getpid()
        self._closing = threading.Lock()  # held by who closes it, for good
        self._recording = threading.Lock()  # guards `trace`, and taking records for it
        self._thread = threading.Thread(target=self._pass_on, name="slipstream-log", daemon=True)
        if timeline is not None and (rank == 0 or "{rank}" in str(timeline)):
            self.record(_trace_for(Path(str(timeline).replace("{rank}", str(rank)))))
        with _lock:
            _open.append(self)
        self._thread.start()

    def is_mine(self) -> bool:
        """Tell whether this process made it, rather than one that it was forked from."""
        return os.getpid() == self._process

    def record(self, trace: TraceFile) -> None:
        """Write every operation to a file from now on."""
        with self._recording:
            self.trace = trace
            self.runtime.keep_records(True)

    def end_recording(self) -> TraceFile | None:
        """Write what is left, and record no more; return the file, if there was one."""
        self._write_records()
        with self._recording:
            trace, self.trace = self.trace, None
            self.runtime.keep_records(False)
        return trace

    def close(self) -> None:
        """Close the engine, and pass on what it has said until then.

        Idempotent; does nothing in a forked child, which owns no engine. Blocks for a few seconds
        at most, until the peers have what they need.
        """
        if not self.is_mine() or not self._closing.acquire(blocking=False):
            return
        self.runtime.close()
        self._thread.join()
        self.end_recording()
        with _lock:
            _open.remove(self)

    def _pass_on(self) -> None:
        while True:
            record = self.runtime.next_log(_TICK_SECONDS)
            if record is not None:
                _log.log(record[0], "rank %d: %s", self.rank, record[1])
                continue
            self._write_records()
            if self._closing.locked():
                return

    def add_bars(self, process: int, title: str, bars: Sequence[Bar]) -> None:
        """Write bars of others to the file, if there is one."""
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
                _log.warning("rank %d: the timeline ends here: %s", self.rank, error)
                self.trace = None
                self.runtime.keep_records(False)


def open_engines() -> list[OpenEngine]:
    """Return the engines of this process that are open; none in a forked child."""
    with _lock:
        return [engine for engine in _open if engine.is_mine()]


def _trace_for(path: Path) -> TraceFile:
    with _lock:
        if path not in _traces:
            try:
                _traces[path] = TraceFile(path)
            except OSError as error:
                raise ConfigError(
                    f"SLIPSTREAM_TIMELINE names {str(path)!r}, which cannot be written: {error}"
                ) from error
        return _traces[path]


@atexit.register
def _close_all() -> None:
    """Leave no engine to threads that end with the interpreter."""
    for engine in open_engines():
        engine.close()
