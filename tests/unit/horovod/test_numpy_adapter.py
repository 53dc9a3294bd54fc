"""A second framework needs one class of small functions: NumPy's arrays through all collectives."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "ranks" / "numpy_collectives.py"


@pytest.mark.multiprocess
def test_numpy_arrays_run_through_all_collectives_without_torch() -> None:
    command = [sys.executable, "-m", "slipstream.cli", "run", "-n", "2", str(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
