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
    "kernels/pack.h": "",
    "kernels/pack.cc": '#include "pack.h"',
}
PROGRAMS = {
    "cmake": "exit 0",
    "g++": "echo g++ 12",
    # It finds fault with sources that contain BAD.
    "clang-tidy": 'case "$*" in --version) echo version $TIDY; exit;; esac\n'
    'for source; do :; done\necho "$source" >> $LINTED\nif grep BAD "$source"; then exit 1; fi',
}
ALL = ["clock.cc", "engine.cc", "pack.cc"]


def write_tree(root: Path, flags: str = "-O3") -> None:
    """Write the sources and their compilation database."""
    for name, text in SOURCES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    calls = [
        {"file": f"{root}/{name}", "command": f"c++ -I{root}/core {flags} -c {root}/{name}"}
        for name in SOURCES
        if name.endswith(".cc")
    ]
    (root / "build/tidy").mkdir(parents=True, exist_ok=True)
    (root / "build/tidy/compile_commands.json").write_text(json.dumps(calls))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of which nothing has been linted."""
    for name, script in PROGRAMS.items():
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LINTED", str(tmp_path / "linted"))
    monkeypatch.setenv("TIDY", "23")
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
        (".clang-tidy", ALL),
    ],
)
def test_a_change_has_those_linted_that_read_it(root: Path, changed: str, again: list[str]) -> None:
    linted(root)
    (root / changed).write_text((root / changed).read_text() + "// changed\n")
    assert linted(root) == again


def test_other_flags_or_another_version_have_all_linted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linted(root)
    write_tree(root, "-O2")
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
