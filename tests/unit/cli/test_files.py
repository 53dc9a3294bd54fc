"""Files that cannot be written are refused before a command computes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli import usage_error

from slipstream.cli.files import writable
from slipstream.errors import UsageError


def test_a_file_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    there, new = tmp_path / "there.json", tmp_path / "a" / "new" / "folder" / "new.json"
    there.write_text("content")
    assert writable(there) == there
    assert writable(new) == new
    assert there.read_text() == "content"
    assert (new.parent.is_dir(), new.exists()) == (True, False)


@pytest.mark.parametrize("path", [None, Path("-")])
def test_what_is_no_file_is_passed_on(path: Path | None) -> None:
    assert writable(path) == path


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/proc/no/file.json", "No such file or directory"),
        ("/dev/null/file.json", "/dev/null is no folder"),
        ("/proc", "Is a directory"),
        ("/proc/version/file.json", "/proc/version is no folder"),
    ],
)
def test_what_cannot_be_written_says_why(path: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"{path} cannot be written: {reason}"):
        writable(Path(path))


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_a_forecast_is_not_begun_that_could_not_be_written(option: str) -> None:
    """It would take minutes: no such model is known, and nobody finds that out."""
    said = usage_error("forecast", "no-model", "--batch", "1", option, "/dev/null/plans")
    assert "/dev/null/plans cannot be written: /dev/null is no folder" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("forecast", "validate", "none.csv", "--html"),
        ("compile", "none.onnx", "--json"),
        ("bench", "comm", "--json"),
        ("bench", "train", "--json"),
        ("bench", "infer", "--json"),
        ("bench", "negotiate", "--json"),
        ("bench", "replay", "--json"),
        ("bench", "forecast", "--json"),
        ("bench", "serve", "none.slip", "--json"),
        ("bench", "pictures", "--json"),
    ],
)
def test_every_command_looks_at_its_files_first(arguments: tuple[str, ...]) -> None:
    said = usage_error(*arguments, "/dev/null/found")
    assert "/dev/null/found cannot be written" in said
