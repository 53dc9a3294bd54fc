"""Launches whose terminal is closed, whose reader has seen enough, and whose disk is full."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.multiprocess

LIMIT_SECONDS = 60.0
COMMAND = [str(Path(sys.executable).with_name("slipstream")), "run", "-n", "2"]
# Lines that no pipe holds all of.
TALKS = 'seq 30000; touch "done.$RANK"'
Run = Callable[..., Any]  # conftest.Launch is what it returns


def test_ranks_save_as_long_as_they_need_after_the_terminal_is_closed(tmp_path: Path) -> None:
    saves = 'sleep 1; echo saving; touch "saved.$RANK"; exit 0'
    program = f"trap '{saves}' HUP; echo up; while :; do sleep 0.05; done"
    controller, terminal = pty.openpty()
    launch = subprocess.Popen(
        ["setsid", "-c", *COMMAND, "sh", "-c", program],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=tmp_path,
    )
    os.close(terminal)
    shown = b""
    while shown.count(b"up\r\n") < 2:
        shown += os.read(controller, 65536)
    os.close(controller)
    assert launch.wait(LIMIT_SECONDS) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved.0", "saved.1"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_ranks_save_when_nobody_reads_their_output_any_more(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    saves = 'sleep 1; seq 30000; mv "up.$RANK" "saved.$RANK"; exit 0'
    program = f"trap '{saves}' TERM; touch up.$RANK; while :; do echo up; done"
    launch = subprocess.Popen(
        [*COMMAND, *options, "sh", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert launch.stdout is not None
    while len(list(tmp_path.glob("up.*"))) < 2:
        launch.stdout.readline()
    launch.stdout.close()
    launch.stdout = None
    _, errors = launch.communicate(timeout=LIMIT_SECONDS)
    assert launch.returncode == 0, errors
    assert errors.count("Broken pipe") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved.0", "saved.1"]


def test_a_full_disk_ends_no_job(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "rank.1"
    folder.mkdir(parents=True)
    (folder / "stdout").symlink_to("/dev/full")
    launch = run("-n", "2", "--output-filename", folder.parent, "sh", "-c", TALKS, cwd=tmp_path)
    assert launch.finish() == 0, launch.errors
    text = (
        f"lines are missing in {folder.parent}, which cannot be written (No space left on device)"
    )
    assert launch.errors.count(text) == 1
    assert (folder.parent / "rank.0" / "stdout").read_text().count("\n") == 30000
    assert launch.output.count("[1] ") == 30000
    assert {path.name for path in tmp_path.glob("done.*")} == {"done.0", "done.1"}


def test_output_on_a_full_disk_ends_no_job(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        launch = subprocess.run(
            [*COMMAND, "sh", "-c", TALKS],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    assert launch.returncode == 0, launch.stderr
    assert launch.stderr.count("output cannot be shown any more: No space left on device") == 1
    assert len(list(tmp_path.iterdir())) == 2


WRITES = """
import os, sys
for number in range(1024):
    os.write(1, (b"x" * 1023 + b"\\n") * 64)
    open("written", "w").write(str(number))
"""


def test_ranks_wait_where_nobody_reads_what_they_write(tmp_path: Path) -> None:
    """They write 64 MiB, which no process may keep for them."""
    launch = subprocess.Popen(
        [*COMMAND[:2], "-n", "1", sys.executable, "-c", WRITES],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
    )
    written, seen, since = tmp_path / "written", "", time.monotonic()
    while not seen or time.monotonic() - since < 1.5:
        now = written.read_text() if written.exists() else ""
        if now != seen:
            seen, since = now, time.monotonic()
        assert seen != "1023"
        time.sleep(0.05)
    launch.terminate()
    output, _ = launch.communicate(timeout=LIMIT_SECONDS)
    assert output.startswith(b"[0] " + b"x" * 1023 + b"\n[0] x")
