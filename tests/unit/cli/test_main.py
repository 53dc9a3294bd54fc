"""The `slipstream` command, whatever comes after it."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from slipstream.cli import app


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


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"slipstream {version('slipstream')}\n"


@pytest.mark.parametrize("command", [[], ["run"], ["forecast", "validate"], ["bench", "comm"]])
def test_h_is_help_everywhere(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app([*command, "-h"], prog_name="slipstream")
    assert ended.value.code == 0
    assert "Usage: slipstream " + " ".join(command) in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_be_taught_to_complete(shell: str) -> None:
    environment = {**os.environ, "_SLIPSTREAM_COMPLETE": f"source_{shell}"}
    ran = subprocess.run(
        [sys.executable, "-m", "slipstream.cli"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_SLIPSTREAM_COMPLETE" in ran.stdout


def test_help_imports_little() -> None:
    program = (
        "import sys\nfrom slipstream.cli import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'rich', 'numpy', 'torch', 'slipstream.bench', 'slipstream.lab'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stderr == "[]\n"


def test_wrong_usage_is_followed_by_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["lab", "link"], prog_name="slipstream")
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("Usage: slipstream lab link [OPTIONS] HOST\n")
