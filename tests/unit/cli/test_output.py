"""Results go to stdout as tables or JSON, and to files; tables break no word."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from cli import in_process
from rich.console import Console
from rich.table import Table

from slipstream.cli.narrow import fitted
from slipstream.cli.output import as_text, emit, make_console

RESULT = {"rate": 1.5, "loss": float("nan"), "rows": [float("inf"), 2]}


def a_table(words: str = "seconds per step") -> Table:
    table = Table("name", words, title="Steps", caption="a caption")
    table.add_row("convolution", "one two three four five six seven")
    return table


def printed(table: Table, columns: int) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=columns)
    console.print(fitted(table, console))
    return file.getvalue().splitlines()


def test_json_is_all_of_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    emit(RESULT, [a_table()], as_json=True, output=file, notes=["no gloo here"])
    streams = capsys.readouterr()
    assert json.loads(streams.out) == {"rate": 1.5, "loss": None, "rows": [None, 2]}
    assert file.read_text() == streams.out
    assert streams.err == f"no gloo here\nwritten: {file}\n"


def test_people_get_tables_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    emit([1], [a_table(), "[text] as it is"], as_json=False, output=file)
    streams = capsys.readouterr()
    assert "convolution" in streams.out
    assert "[text] as it is\n" in streams.out
    assert json.loads(file.read_text()) == [1]


def test_numbers_that_json_does_not_know_are_null() -> None:
    assert as_text((float("-inf"), 1)) == "[\n null,\n 1\n]\n"


def test_without_a_terminal_nothing_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.delenv("COLUMNS", raising=False)
    make_console(file).print(a_table("word " * 60))
    assert any(line.count("word") == 60 for line in file.getvalue().splitlines())
    monkeypatch.setenv("COLUMNS", "40")
    assert make_console(file).width == 40


@pytest.mark.parametrize("columns", [24, 32, 45, 60])
def test_a_table_wraps_between_words(columns: int) -> None:
    lines = printed(a_table(), columns)
    assert max(map(len, lines)) <= columns
    words = re.sub("[\u2500-\u257f]", " ", " ".join(lines)).split()
    assert {"convolution", "seconds", "three", "seven"} <= set(words)


def test_a_table_that_cannot_fit_becomes_a_list() -> None:
    lines = [line.rstrip() for line in printed(a_table("seconds"), 20)]
    assert lines[0] == "Steps"
    assert lines[1] == "name    convolution"
    assert lines[2].startswith("seconds one two")
    assert lines[-1] == "a caption"


@pytest.mark.parametrize(
    "command",
    [
        "doctor",
        "doctor --algorithms",
        "bench replay vgg16 --limits",
        "lab status",
        "compile --list",
    ],
)
def test_a_command_prints_one_json_document(command: str) -> None:
    done = in_process(*command.split(), "--json")
    json.loads(done.stdout)
    assert done.stdout.endswith(("]\n", "}\n"))
