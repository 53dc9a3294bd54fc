"""A picture of every operation over time, in the format of Chrome's trace viewer and Perfetto.

A row is a group of one rank; an operation is a bar from its submission to its end. Times are those
of the host's monotonic clock, so ranks of one host line up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from slipstream import _core
from slipstream.comm.active import OpenEngine, open_engines
from slipstream.errors import UsageError

_started: Path | None = None


def start(path: str | Path) -> None:
    """Record every operation from now on.

    Args:
        path: the file that stop() writes; `{rank}` in it becomes the rank.

    Raises:
        UsageError: no engine is open, or a timeline is recorded already.
    """
    global _started
    if _started is not None:
        raise UsageError(f"a timeline is being recorded to {str(_started)!r}; stop it first")
    if not open_engines():
        raise UsageError("no engine is open; start the timeline after init")
    for engine in open_engines():
        engine.runtime.keep_records(True)
    _started = Path(path)


def stop() -> Path | None:
    """End the recording and write the file.

    Returns:
        The file written; None where nothing was recorded.
    """
    global _started
    if _started is None:
        return None
    path, _started = _started, None
    events: list[dict[str, Any]] = []
    rank = 0
    for engine in open_engines():
        engine.runtime.keep_records(False)
        rank = engine.rank
        events += _events(engine)
    target = Path(str(path).replace("{rank}", str(rank)))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
    return target


def _events(engine: OpenEngine) -> list[dict[str, Any]]:
    records = engine.runtime.take_records()
    rows: dict[str, int] = {}
    events = [_event(record, engine.rank, rows) for record in records]
    names = [_name("process_name", engine.rank, 0, f"rank {engine.rank}")]
    names += [_name("thread_name", engine.rank, row, group) for group, row in rows.items()]
    return names + events


def _event(record: _core.OperationRecord, rank: int, rows: dict[str, int]) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": record.name or record.collective,
        "cat": record.collective,
        "pid": rank,
        "tid": rows.setdefault(record.group, len(rows) + 1),
        "ts": record.submitted / 1e3,
        "dur": (record.completed - record.submitted) / 1e3,
        "args": {
            "collective": record.collective,
            "bytes": record.bytes,
            "operation": record.sequence,
            "queued_us": (record.started - record.submitted) / 1e3,
            "failed": record.failed,
        },
    }


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
