"""Training on four hosts while links, connections and processes fail, for a short time."""

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

SCRIPT = Path(__file__).parents[1] / "soak" / "chaos.py"


@pytest.mark.parametrize("seed", [1])
def test_training_survives_faults_without_a_trace(seed: int) -> None:
    command = [sys.executable, str(SCRIPT), "--events", "5", "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert sum(report["events"].values()) == 5
    assert report["accuracy"] == pytest.approx(report["accuracy_without_faults"], abs=0.003)
