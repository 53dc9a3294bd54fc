"""`slipstream doctor` as a user sees it."""

import json
import os
import subprocess
import sys
from pathlib import Path

DOCTOR = (Path(sys.executable).with_name("slipstream"), "doctor")


def test_everything_fits_on_a_screen_of_80_columns() -> None:
    environ = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(DOCTOR, env=environ, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert max(len(line) for line in lines) <= 80
    for name in ("Python", "processor", "interface", "core", "torch", "ssh", "srun"):
        assert any(line[3:].startswith(name) for line in lines), name


def test_the_exit_code_says_whether_something_is_wrong() -> None:
    done = subprocess.run((*DOCTOR, "--json"), capture_output=True, text=True, check=False)
    states = {finding["state"] for finding in json.loads(done.stdout)}
    assert done.returncode == int("wrong" in states)
    bad = {**os.environ, "SLIPSTREAM_STREAMS": "many"}
    assert subprocess.run(DOCTOR, env=bad, capture_output=True, check=False).returncode == 1


def test_the_rules_by_which_algorithms_are_chosen_can_be_shown() -> None:
    done = subprocess.run((*DOCTOR, "--algorithms"), capture_output=True, text=True, check=True)
    for name in ("allreduce", "ring", "recursive_doubling", "any size", "ranks"):
        assert name in done.stdout, name
