"""The measurement of training that a fault hits again and again, for a short time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.netns,
    pytest.mark.alone,
    pytest.mark.multiprocess,
    pytest.mark.slow("short form of a soak test"),
]

SCRIPT = Path(__file__).parents[1] / "soak" / "faults.py"


def test_a_job_trains_on_after_a_kill_a_stop_and_a_partition() -> None:
    options = ["--minutes", "0.3", "--every", "6", "--calm", "3", "--fault-seconds", "2", "3"]
    command = [sys.executable, str(SCRIPT), *options, "--bar", "0.3", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr.startswith("seed 3")
    faults = json.loads(done.stdout)["of_each"]
    assert [fault["kind"] for fault in faults] == ["kill", "stop", "partition"]
