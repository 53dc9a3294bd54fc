"""A short form of tests/soak/queue_kills.py: nothing is lost, runs twice or is overbooked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "soak" / "queue_kills.py"


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("options", "least"),
    [
        pytest.param(
            "--jobs 100 --kills 5 --mean 0.3 --bar 0 --seed 1",
            {"jobs": 100, "kills": 5},
            marks=pytest.mark.slow("queue kills"),
        ),
        pytest.param(
            "--jobs 0 --points --every 7", {"points": 20}, marks=pytest.mark.slow("queue kills")
        ),
    ],
)
def test_kills_of_the_daemon(options, least):
    command = [sys.executable, str(PROGRAM), *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout[done.stdout.index("{") :])
    for name, number in least.items():
        assert result[name] >= number, name
