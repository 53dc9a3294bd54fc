"""Starting real workers the way a user does."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def slipstream_run() -> Start:
    """Start a script on several workers; output is one stream of text, or goes to a terminal."""

    def start(
        num_workers: int, script: Path, *arguments: str, terminal: int | None = None
    ) -> "subprocess.Popen[str]":
        command = [str(Path(sys.executable).with_name("slipstream")), "run", "-n", f"{num_workers}"]
        tty = [] if terminal is None else ["--tty"]
        return subprocess.Popen(
            [*command, *tty, str(script), *arguments],
            stdout=subprocess.PIPE if terminal is None else terminal,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start
