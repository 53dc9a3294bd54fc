"""The short form of tests/soak/strangers.py: a job goes on while strangers attack all its ports."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "soak" / "strangers.py"

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow("short form of a soak test")]


def test_a_job_withstands_strangers() -> None:
    command = [sys.executable, str(SCRIPT), "--short"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none accepted" in done.stdout
