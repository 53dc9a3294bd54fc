"""Starting real workers the way a user does."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def slipstream_run() -> Start:
    """Start a script on several workers of this machine; output is one stream of text."""

    def start(num_workers: int, script: Path, *arguments: str) -> "subprocess.Popen[str]":
        command = [str(Path(sys.executable).with_name("slipstream")), "run", "-n", f"{num_workers}"]
        return subprocess.Popen(
            [*command, str(script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start
