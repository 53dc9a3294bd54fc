"""Records as files: they come back as they were, and wrong ones are refused with the field."""

import json
from pathlib import Path

import pytest

from slipstream.flight.codec import as_json, from_json, write_atomically
from slipstream.flight.launcher import LauncherRecord, RankEnd
from slipstream.flight.record import (
    ClockReading,
    FlightRecord,
    Occasion,
    RaisedError,
    RecordedEngine,
    StackLine,
)


def a_record() -> FlightRecord:
    line = StackLine(file="train.py", line=3, function="load", code="x = 1")
    error = RaisedError(type="ValueError", message="é", is_communication=False, lines=(line,))
    return FlightRecord(
        rank=1,
        world_size=2,
        host="a",
        pid=17,
        command=("python", "train.py"),
        started=1.0,
        clock=ClockReading(wall=5.0, monotonic=2.0),
        occasions=(Occasion(kind="exception", text="ValueError", at=1.0, wall=4.0, error=error),),
        engines=(RecordedEngine(rank=1, world_size=2, epoch=1, is_open=True, ended_operations=0),),
        load=(0.5, 0.25),
        environment={"RANK": "1"},
    )


def test_a_record_comes_back_as_it_was() -> None:
    record = a_record()
    assert from_json(FlightRecord, as_json(record)) == record
    ends = (RankEnd(rank=0, host="a", status=-9, seconds=1.5), RankEnd(rank=1, host="b"))
    launcher = LauncherRecord(command=("x",), started=1.0, seconds=2.0, ranks=ends, first=0)
    assert from_json(LauncherRecord, as_json(launcher)) == launcher


def test_whole_numbers_are_numbers_and_new_fields_are_ignored() -> None:
    content = json.loads(as_json(a_record()))
    content["started"] = 3
    content["colour"] = "red"
    assert from_json(FlightRecord, json.dumps(content)).started == 3.0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("rank", "one", "FlightRecord.rank is 'one'; allowed: a value of type int"),
        ("command", "python", "FlightRecord.command is 'python'"),
        ("clock", {"wall": 1.0}, "FlightRecord.clock: .*monotonic"),
        ("occasions", [{"kind": 3}], r"FlightRecord.occasions\[0\].kind is 3"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object, message: str) -> None:
    content = json.loads(as_json(a_record())) | {field: value}
    with pytest.raises(ValueError, match=message):
        from_json(FlightRecord, json.dumps(content))


def test_a_file_is_replaced_as_a_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rank-0000.json"
    write_atomically(path, "first")
    write_atomically(path, "second")
    assert path.read_text() == "second"
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(FileExistsError):
        write_atomically(path / "below", "third")
