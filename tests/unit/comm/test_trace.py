"""The file of a timeline, event by event."""

import json
import time
from pathlib import Path
from typing import Any

from slipstream import _core
from slipstream.comm.trace import Bar, TraceFile


def events(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["traceEvents"]


def test_a_file_without_events_is_whole_and_says_when_its_clock_began(tmp_path: Path) -> None:
    before = time.time_ns() // 1000, time.monotonic_ns() // 1000
    path = tmp_path / "a" / "b" / "trace.json"
    trace = TraceFile(path)
    assert trace.path == path
    whole = json.loads(path.read_text())
    assert (whole["displayTimeUnit"], whole["traceEvents"]) == ("ms", [])
    epoch = whole["otherData"]["start_time_since_epoch_in_micros"]
    monotonic = whole["otherData"]["start_time_in_events_in_micros"]
    assert before[0] <= epoch <= time.time_ns() // 1000
    assert before[1] <= monotonic <= time.monotonic_ns() // 1000
    text = path.read_text()
    trace.add_bars(7, "mine", [])
    assert path.read_text() == text
    TraceFile(path)  # again: it is overwritten, and its folder may be there
    assert events(path) == []


def test_bars_have_lengths_and_marks_have_none(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "trace.json")
    trace.add_bars(7, "mine", [Bar("row", "bar", 1500, 4000, {"n": 1}), Bar("row", "mark", 5, 5)])
    place = {"pid": 7, "tid": 1}
    assert events(trace.path) == [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "mine"}},
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 1, "args": {"name": "row"}},
        {"ph": "X", "name": "bar", "ts": 1.5, "dur": 2.5, "args": {"n": 1}, **place},
        {"ph": "i", "s": "p", "name": "mark", "ts": 0.005, "args": {}, **place},
    ]


def test_rows_are_numbered_as_they_come_and_named_once(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "trace.json")
    for process, row in ((7, "a"), (7, "b"), (8, "a"), (7, "a")):
        trace.add_bars(process, f"title {process}", [Bar(row, "bar", 0, 1)])
    seen = events(trace.path)
    placed = [(each["pid"], each["tid"]) for each in seen if each["ph"] == "X"]
    assert placed == [(7, 1), (7, 2), (8, 3), (7, 1)]
    assert len([each for each in seen if each["name"] == "thread_name"]) == 3


def test_an_operation_shows_its_kind_size_number_and_times(
    pair: list[_core.Runtime], tmp_path: Path
) -> None:
    before = time.monotonic_ns()
    groups = [runtime.group("two", [0, 1]) for runtime in pair]
    pair[0].keep_records(True)
    handles = [group.barrier() for group in groups]
    handles[0].wait(10.0)
    records = pair[0].take_records()
    trace = TraceFile(tmp_path / "trace.json")
    trace.add(3, records)
    process, thread, bar = events(trace.path)
    assert (process["args"]["name"], thread["args"]["name"]) == ("rank 3", "two")
    (record,) = records
    assert before <= record.submitted <= record.started <= record.completed
    assert bar == {
        "ph": "X",
        "name": "barrier",
        "cat": "barrier",
        "ts": record.submitted / 1000,
        "dur": (record.completed - record.submitted) / 1000,
        "args": {
            "collective": "barrier",
            "bytes": 0,
            "operation": record.sequence,
            "queued_us": (record.started - record.submitted) / 1000,
            "failed": False,
        },
        "pid": 3,
        "tid": 1,
    }
