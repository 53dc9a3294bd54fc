"""The `slipstream` command, whatever comes after it."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("command", [("run", "-n", "1", "true"), ("compile", "model.onnx")])
def test_a_working_directory_that_was_deleted_is_said_in_a_line(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "gone").mkdir()
    program = 'cd gone && rmdir ../gone && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", program, "sh", sys.executable, "-m", "slipstream.cli", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    words = "slipstream: the working directory was deleted; change to one that is there\n"
    assert done.stderr.endswith(words)
    assert "Traceback" not in done.stderr
