"""Timelines of all operations, for Chrome's trace viewer and Perfetto.

SLIPSTREAM_TIMELINE records a complete run; start() and stop() record a part of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slipstream.comm.active import open_engines
from slipstream.comm.trace import Bar as Bar
from slipstream.comm.trace import TraceFile
from slipstream.errors import UsageError


def start(path: str | Path) -> None:
    """Start to record every operation of this process's engines; does not block.

    Args:
        path: Path of the file, which is made at once and written every second; `{rank}` in the
            path becomes the rank.

    Raises:
        UsageError: no engine is open, or a timeline is being recorded already.
    """
    engines = open_engines()
    if not engines:
        raise UsageError("no engine is open; start the timeline after init()")
    for engine in engines:
        if engine.trace is not None:
            raise UsageError(
                f"a timeline is being recorded to {str(engine.trace.path)!r}; stop it first"
            )
    trace = TraceFile(Path(str(path).replace("{rank}", str(engines[0].rank))))
    for engine in engines:
        engine.record(trace)


def path() -> Path | None:
    """Return the path of the timeline that is being recorded, or None."""
    for engine in open_engines():
        trace = engine.trace  # read once, because another thread may stop the recording
        if trace is not None:
            return trace.path
    return None


def add(process: int, title: str, bars: Sequence[Bar]) -> None:
    """Write bars to the timeline at once, if one is being recorded.

    Args:
        process: Process number under which the viewer shows the bars. The number must not be a
            rank, because the viewer shows a rank's operations under the rank's number.
        title: Title of this process in the viewer.
        bars: Bars in any order; their times are those of the monotonic clock.
    """
    writers = {id(engine.trace): engine for engine in open_engines()}  # one engine per file
    for engine in writers.values():
        engine.add_bars(process, title, bars)


def stop() -> Path | None:
    """End the recording and finish the file.

    Returns:
        Path of the file; None if nothing was recorded.
    """
    written: Path | None = None
    for engine in open_engines():
        trace = engine.end_recording()
        written = trace.path if trace is not None else written
    return written
