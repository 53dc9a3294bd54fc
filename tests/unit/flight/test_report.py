"""Accounts on a terminal, and records that somebody has changed."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from slipstream.flight.account import explain
from slipstream.flight.codec import as_json
from slipstream.flight.files import record_path
from slipstream.flight.record import (
    ClockReading,
    FlightRecord,
    Occasion,
    RecordedEngine,
    RecordedEvent,
    RecordedOperation,
    RecordedPeer,
)
from slipstream.flight.report import screen


def a_record(name: str = "grad", host: str = "a") -> FlightRecord:
    operation = RecordedOperation(
        collective="allreduce", name=name, group="world", sequence=1, dtype="float32", bytes=8,
        state="failed", submitted=1.0, started=1.0, ended=2.0, wall=2.0, absent=(1,),
    )  # fmt: skip
    event = RecordedEvent(kind="failed", text=f"rank 1 is gone from {host}", at=2.0, wall=2.0)
    peer = RecordedPeer(
        rank=1, host="b", connection="tcp", state="gone", why="it ended", ended=1.5, heard=1.0,
        streams=1, streams_alive=0, bytes_sent=1, bytes_received=1,
    )  # fmt: skip
    engine = RecordedEngine(
        rank=0, world_size=2, epoch=1, is_open=True, ended_operations=1,
        operations=(operation,), events=(event,), peers=(peer,),
    )  # fmt: skip
    return FlightRecord(
        rank=0, world_size=2, host=host, pid=7, command=("train.py",), started=1.0,
        clock=ClockReading(wall=3.0, monotonic=3.0), engines=(engine,),
        occasions=(Occasion(kind="failure", text=event.text, at=2.0, wall=2.0),),
    )  # fmt: skip


def shown(folder: Path) -> str:
    console = Console(file=StringIO(), width=400, force_terminal=True, color_system=None)
    for part in screen(explain(folder)):
        console.print(part)
    return console.file.getvalue()


def test_names_with_brackets_are_shown_as_they_are(tmp_path: Path) -> None:
    """A table of Rich takes them for markup, and one such as [/x] ended the command."""
    record_path(tmp_path, 0).write_text(as_json(a_record(name="loss[train][/x]")))
    assert "allreduce 'loss[train][/x]' #1" in shown(tmp_path)


def test_a_terminal_finds_no_commands_in_records(tmp_path: Path) -> None:
    record = a_record(name="\x1b]0;title\x1b\\\x9b2J", host="h\x1b[31m\u202e")
    record_path(tmp_path, 0).write_text(as_json(record))
    text = shown(tmp_path)
    assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    assert r"\x1b]0;title" in text
    assert r"\u202e" in text


def changed(**fields: object) -> str:
    return json.dumps(json.loads(as_json(a_record())) | fields)


HOSTILE = {
    "deep": "[" * 100_000,
    "many ranks": changed(world_size=10**9),
    "a high rank": changed(rank=10**12, world_size=10**13),
    "a negative rank": changed(rank=-1),
    "no time": changed(clock={"wall": float("nan"), "monotonic": 1.0}),
    "late": changed(occasions=[{"kind": "failure", "text": "x", "at": 1.0, "wall": 1e300}]),
    "a long number": changed(started=10**400),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_record_with_lies_is_a_problem_and_costs_nothing(tmp_path: Path, name: str) -> None:
    record_path(tmp_path, 0).write_text(HOSTILE[name])
    record_path(tmp_path, 1).write_text(changed(rank=1))
    told = explain(tmp_path)
    assert len(told.rows) == 2
    assert "rank-0000.json is not a slipstream flight record" in told.problems[0]


def test_a_record_with_strange_peers_and_texts_is_explained(tmp_path: Path) -> None:
    record = json.loads(as_json(a_record()))
    record["engines"][0]["peers"][0]["rank"] = 9
    record["engines"][0]["events"][0]["text"] = ""
    record["occasions"][0]["text"] = ""
    record_path(tmp_path, 0).write_text(json.dumps(record))
    (tmp_path / "rank-99999999.crash.txt").write_text("Fatal Python error: x")
    (tmp_path / "rank-\u00b2.crash.txt").write_text("Fatal Python error: x")
    assert [row.rank for row in explain(tmp_path).rows] == [0, 1]
