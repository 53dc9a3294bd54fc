"""The file of a timeline, for Chrome's trace viewer and Perfetto.

Each group of each rank has a row, in which an operation is a bar from its submission to its end.
Times are those of the host's monotonic clock, so the bars of ranks on one host are aligned.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream import _core

_TAIL = b"\n]}\n"


@dataclass(frozen=True, slots=True)
class Bar:
    """An activity outside the engine, with its begin and its end.

    Args:
        row: Title of the row in which the bar is drawn; bars of one row must not overlap.
        name: Text on the bar.
        begin: Time of the begin in ns of the monotonic clock.
        end: Time of the end in ns of the monotonic clock; if it equals `begin`, the bar becomes a
            mark.
        details: Values that the viewer shows for the bar (default none).
    """

    row: str
    name: str
    begin: int
    end: int
    details: dict[str, Any] = field(default_factory=dict[str, Any])


class TraceFile:
    """A trace file that is valid JSON after every call, even if the process is killed later.

    Args:
        path: Path of the file, which is made or overwritten at once; its folder is made if it is
            missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()  # guards the file and the fields below
        head = _head()
        self._begin = self._end = len(head)
        self._rows: dict[tuple[int, str], int] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(head + _TAIL)

    def add(self, rank: int, records: Sequence[_core.OperationRecord]) -> None:
        """Write operations of a rank to the file."""
        title = f"rank {rank}"
        self._write((rank, title, record.group, _operation(record)) for record in records)

    def add_bars(self, process: int, title: str, bars: Iterable[Bar]) -> None:
        """Write bars for activities outside the engine.

        Args:
            process: Process number under which the viewer shows the bars. The number must not be a
                rank, because the viewer shows a rank's operations under the rank's number.
            title: Title of this process in the viewer.
            bars: Bars to write, in any order.
        """
        self._write((process, title, bar.row, _bar(bar)) for bar in bars)

    def _write(self, events: Iterable[tuple[int, str, str, dict[str, Any]]]) -> None:
        """Write events; each comes with its process number, process title and row title."""
        with self._lock:
            placed = [event for fields in events for event in self._placed(*fields)]
            if not placed:
                return
            text = b",\n".join(json.dumps(event).encode() for event in placed)
            separator = b",\n" if self._end > self._begin else b""
            with self.path.open("r+b") as file:
                file.seek(self._end)
                file.write(separator + text + _TAIL)
            self._end += len(separator) + len(text)

    def _placed(
        self, process: int, title: str, row_title: str, event: dict[str, Any]
    ) -> list[dict[str, Any]]:
        row = self._rows.get((process, row_title))
        events: list[dict[str, Any]] = []
        if row is None:
            row = self._rows[process, row_title] = len(self._rows) + 1
            events.append(_naming("process_name", process, 0, title))
            events.append(_naming("thread_name", process, row, row_title))
        events.append({**event, "pid": process, "tid": row})
        return events


def _head() -> bytes:
    """Return the head of the file, which relates event times to Unix time."""
    now = {
        "start_time_since_epoch_in_micros": time.time_ns() // 1000,
        "start_time_in_events_in_micros": time.monotonic_ns() // 1000,
    }
    return f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(now)}, "traceEvents": [\n'.encode()


def _bar(bar: Bar) -> dict[str, Any]:
    event: dict[str, Any] = {"name": bar.name, "ts": bar.begin / 1e3, "args": bar.details}
    if bar.begin == bar.end:
        return {"ph": "i", "s": "p", **event}
    return {"ph": "X", **event, "dur": (bar.end - bar.begin) / 1e3}


def _operation(record: _core.OperationRecord) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": record.name or record.collective,
        "cat": record.collective,
        "ts": record.submitted / 1e3,
        "dur": (record.completed - record.submitted) / 1e3,
        "args": {
            "collective": record.collective,
            "bytes": record.bytes,
            "operation": record.sequence,
            "queued_us": (record.started - record.submitted) / 1e3,
            "failed": record.state == "failed",
        },
    }


def _naming(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
