"""Lists are split, and files that cannot be written are refused before a command computes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli import usage_error

from slipstream.cli.options import (
    check_output_file,
    split_counts,
    split_list,
    split_peers,
)
from slipstream.errors import UsageError


def test_a_file_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    there, new = tmp_path / "there.json", tmp_path / "a" / "new" / "folder" / "new.json"
    there.write_text("content")
    assert check_output_file(there) == there
    assert check_output_file(new) == new
    assert there.read_text() == "content"
    assert (new.parent.is_dir(), new.exists()) == (True, False)


def test_no_file_is_passed_on() -> None:
    assert check_output_file(None) is None


def test_a_hyphen_is_no_file() -> None:
    with pytest.raises(UsageError, match="give a file name, or --json for stdout"):
        check_output_file(Path("-"))


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
        check_output_file(Path(path))


@pytest.mark.parametrize(
    "arguments",
    [
        ("forecast", "no-model", "--batch", "1", "--output"),
        ("forecast", "no-model", "--batch", "1", "--html"),
        ("forecast", "validate", "none.csv", "--html"),
        ("ask", "none.slip", "none.jpg", "-o"),
        ("lab", "compare", "-o"),
        ("bench", "comm", "-o"),
        ("bench", "train", "-o"),
        ("bench", "infer", "-o"),
        ("bench", "negotiate", "-o"),
        ("bench", "plugin", "-o"),
        ("bench", "replay", "-o"),
        ("bench", "forecast", "-o"),
        ("bench", "serve", "none.slip", "-o"),
        ("bench", "serve", "none.slip", "--chart"),
        ("bench", "images", "-o"),
    ],
)
def test_every_command_looks_at_its_files_first(arguments: tuple[str, ...]) -> None:
    said = usage_error(*arguments, "/dev/null/found")
    assert "/dev/null/found cannot be written: /dev/null is no folder" in said


def test_lists_are_split_at_commas() -> None:
    assert split_list(" a, b,,c ") == ("a", "b", "c")
    assert split_counts("2, 4", "--num-hosts") == (2, 4)
    assert split_peers("gloo,mpi") == ("gloo", "mpi")
    assert split_peers("none") == ()


@pytest.mark.parametrize("text", ["", "x", "2,x", "0", "-1", "1.5"])
def test_other_counts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--ranks is .*; allowed: whole numbers from 1"):
        split_counts(text, "--ranks")


@pytest.mark.parametrize("text", ["", "none,gloo"])
def test_no_peer_is_named_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--peers is .*; allowed: names .*, or none$"):
        split_peers(text)
