"""What is linted again, on a small tree with scripts in place of cmake and clang-tidy."""

import json
import os
import time
from pathlib import Path

import clang_tidy
import pytest

SOURCES = {
    ".clang-tidy": "",
    "core/base/clock.h": "",
    "core/base/clock.cc": '#include "base/clock.h"',
    "core/engine/engine.h": '#include "base/clock.h"',
    "core/engine/engine.cc": '#include "engine/engine.h"',
    "core/engine/.clang-tidy": "",
    "kernels/pack.h": "",
    "kernels/pack.cc": "#  include <program/steps.h>  // not beside it",
    "kernels/program/steps.h": '#include "../pack.h"',
}
PROGRAMS = {
    "cmake": "exit 0",
    "g++": "echo g++ 12",
    # It finds fault with sources that contain BAD, and is killed by those that contain KILL.
    "clang-tidy": 'case "$*" in --version) echo version $TIDY; exit;; esac\n'
    'for source; do :; done\necho "$source" >> $LINTED\neval "$MEANWHILE"\n'
    'if grep -q KILL "$source"; then kill -9 $$; fi\nif grep BAD "$source"; then exit 1; fi',
}
ALL = ["clock.cc", "engine.cc", "pack.cc"]


def write_tree(root: Path, flags: str = "-O3", compiler: str = "c++") -> None:
    """Write the sources and their compilation database."""
    for name, text in SOURCES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    command = f"{compiler} -I{root}/core -I{root}/kernels {flags} -c"
    names = [name for name in SOURCES if name.endswith(".cc")]
    write_database(root, {name: [f"{command} {root}/{name}"] for name in names})


def write_database(root: Path, commands: dict[str, list[str]]) -> None:
    """Write a compilation database."""
    calls = [
        {"file": f"{root}/{name}", "command": command}
        for name in commands
        for command in commands[name]
    ]
    (root / "build/tidy").mkdir(parents=True, exist_ok=True)
    (root / "build/tidy/compile_commands.json").write_text(json.dumps(calls))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a tree in which no file has been checked."""
    for name, script in PROGRAMS.items():
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LINTED", str(tmp_path / "linted"))
    monkeypatch.setenv("TIDY", "23")
    monkeypatch.setenv("MEANWHILE", "")
    write_tree(tmp_path / "tree")
    return tmp_path / "tree"


def linted(root: Path, code: int = 0) -> list[str]:
    """Return the names of the sources that one call of the tool gives to clang-tidy."""
    log = Path(os.environ["LINTED"])
    log.write_text("")
    assert clang_tidy.main(root) == code
    return sorted(Path(line).name for line in log.read_text().splitlines())


def test_what_passed_is_not_linted_again_in_another_checkout_either(
    root: Path, tmp_path: Path
) -> None:
    assert linted(root) == ALL
    assert linted(root) == []
    write_tree(tmp_path / "other")
    assert linted(tmp_path / "other") == []


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ("core/base/clock.h", ["clock.cc", "engine.cc"]),
        ("core/engine/engine.h", ["engine.cc"]),
        ("core/base/clock.cc", ["clock.cc"]),
        ("kernels/pack.h", ["pack.cc"]),
        ("kernels/program/steps.h", ["pack.cc"]),
        (".clang-tidy", ALL),
        ("core/engine/.clang-tidy", ALL),
    ],
)
def test_a_change_has_those_linted_that_read_it(root: Path, changed: str, again: list[str]) -> None:
    linted(root)
    (root / changed).write_text((root / changed).read_text() + "// changed\n")
    assert linted(root) == again


def test_other_flags_another_compiler_or_another_version_have_all_linted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linted(root)
    write_tree(root, "-O2")
    assert linted(root) == ALL
    write_tree(root, "-O2", "clang++")
    assert linted(root) == ALL
    monkeypatch.setattr(clang_tidy, "COMMAND", [*clang_tidy.COMMAND, "--fix"], raising=False)
    assert linted(root) == ALL
    monkeypatch.setenv("TIDY", "24")
    assert linted(root) == ALL


def test_what_has_findings_is_printed_and_linted_again(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "kernels/pack.cc").write_text("BAD\n")
    assert linted(root, code=1) == ALL
    assert capsys.readouterr().out == "BAD\n"
    assert linted(root, code=1) == ["pack.cc"]


def test_each_command_of_a_source_counts(root: Path) -> None:
    for flags in ("-O2", "-O3"):
        write_database(root, {"kernels/pack.cc": [f"c++ {flags} -c pack.cc", "c++ -c pack.cc"]})
        assert linted(root) == ["pack.cc"]


def test_a_killed_clang_tidy_has_not_passed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = root / "kernels/pack.cc"
    source.write_text("KILL\n")
    assert linted(root, code=1) == ALL
    assert capsys.readouterr().out == f"{source}: clang-tidy ended with -9\n"
    assert linted(root, code=1) == ["pack.cc"]


def test_what_changes_while_it_is_linted_is_linted_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = root / "core/engine/engine.h"
    text = header.read_text()
    monkeypatch.setenv("MEANWHILE", f"echo // changed > {header}")
    assert linted(root) == ALL
    header.write_text(text)
    monkeypatch.setenv("MEANWHILE", "")
    assert linted(root) == ["engine.cc"]


def test_an_empty_database_fails(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_database(root, {})
    assert linted(root, code=1) == []
    assert "compile_commands.json has no source in core" in capsys.readouterr().out


def test_a_stamp_that_another_checkout_has_deleted_is_no_error(root: Path, tmp_path: Path) -> None:
    linted(root)
    (tmp_path / "cache/slipstream/clang-tidy/deleted").symlink_to("nothing")
    assert linted(root) == []


def test_a_stamp_lasts_sixty_days_from_its_last_use(root: Path, tmp_path: Path) -> None:
    linted(root)
    stamps = tmp_path / "cache/slipstream/clang-tidy"
    unused = stamps / "of-a-source-that-changed"
    unused.touch()
    for stamp in stamps.iterdir():
        os.utime(stamp, (time.time() - 61 * 24 * 3600,) * 2)
    assert linted(root) == []
    assert len(list(stamps.iterdir())) == len(ALL)
    assert not unused.exists()
