"""A picture of every operation over time, for Chrome's trace viewer and Perfetto.

SLIPSTREAM_TIMELINE records a whole run; start() and stop() a part of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slipstream.comm.active import open_engines
from slipstream.comm.trace import Bar as Bar
from slipstream.comm.trace import TraceFile
from slipstream.errors import UsageError


def start(path: str | Path) -> None:
    """Record every operation of this process from now on; does not block.

    Args:
        path: the file, made at once and written every second; `{rank}` in it becomes the rank.

    Raises:
        UsageError: no engine is open, or a timeline is recorded already.
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
    """Return the file that is being recorded to, if there is one."""
    for engine in open_engines():
        trace = engine.trace  # another thread may stop it
        if trace is not None:
            return trace.path
    return None


def add(process: int, title: str, bars: Sequence[Bar]) -> None:
    """Write bars of the caller's own at once, if a timeline is being recorded.

    Args:
        process: Number of the process row of the bars; it must not be the number of a rank.
        title: Title of that process row.
        bars: Bars in any order; their times are those of the monotonic clock.
    """
    writers = {id(engine.trace): engine for engine in open_engines()}  # one for each file
    for engine in writers.values():
        engine.add_bars(process, title, bars)


def stop() -> Path | None:
    """End the recording and finish the file.

    Returns:
        The file written; None where nothing was recorded.
    """
    written: Path | None = None
    for engine in open_engines():
        trace = engine.end_recording()
        written = trace.path if trace is not None else written
    return written
