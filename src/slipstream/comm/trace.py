"""The file of a timeline: operations over time, for Chrome's trace viewer and Perfetto.

A row is a group of one rank; an operation is a bar from its submission to its end. Times are those
of the host's monotonic clock, so ranks of one host line up.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slipstream import _core

_HEAD = b'{"displayTimeUnit": "ms", "traceEvents": [\n'
_TAIL = b"\n]}\n"


class TraceFile:
    """A file that is whole after every call, so that a process that is killed leaves one too.

    Args:
        path: made, or overwritten, at once; its folder is made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()  # guards the file and the fields below
        self._end = len(_HEAD)
        self._rows: dict[tuple[int, str], int] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_HEAD + _TAIL)

    def add(self, rank: int, records: Sequence[_core.OperationRecord]) -> None:
        """Write operations of a rank to the file."""
        with self._lock:
            events = [event for record in records for event in self._events(record, rank)]
            if not events:
                return
            text = b",\n".join(json.dumps(event).encode() for event in events)
            separator = b",\n" if self._end > len(_HEAD) else b""
            with self.path.open("r+b") as file:
                file.seek(self._end)
                file.write(separator + text + _TAIL)
            self._end += len(separator) + len(text)

    def _events(self, record: _core.OperationRecord, rank: int) -> list[dict[str, Any]]:
        row = self._rows.get((rank, record.group))
        events: list[dict[str, Any]] = []
        if row is None:
            row = self._rows[rank, record.group] = len(self._rows) + 1
            events.append(_naming("process_name", rank, 0, f"rank {rank}"))
            events.append(_naming("thread_name", rank, row, record.group))
        events.append(_bar(record, rank, row))
        return events


def _bar(record: _core.OperationRecord, rank: int, row: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": record.name or record.collective,
        "cat": record.collective,
        "pid": rank,
        "tid": row,
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


def _naming(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
