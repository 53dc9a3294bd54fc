"""A short form of tests/soak/queue_kills.py: nothing is lost, runs twice or is overbooked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "soak" / "queue_kills.py"


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(
            "--jobs 60 --kills 5 --mean 0.3 --bar 0 --seed 1",
            {"jobs": 60, "kills": 5},
            marks=pytest.mark.slow("queue kills"),
        ),
        pytest.param("--jobs 0 --points", {}, marks=pytest.mark.slow("queue kills")),
    ],
)
def test_kills_of_the_daemon(options, expected):
    command = [sys.executable, str(PROGRAM), *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout[done.stdout.index("{") :])
    assert expected.items() <= result.items()
