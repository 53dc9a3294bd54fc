"""The launcher names the rank by which a job failed, not the one that ended first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.multiprocess

Run = Callable[..., Any]  # conftest.Launch is what it returns

# Rank 1 fails, leaves the job, and takes its time to end; the others lose it meanwhile.
SLOW_TO_END = """
import sys, time
import numpy as np
from slipstream import comm

comm.init()
comm.barrier()
if comm.rank() == 1:
    print("ValueError: the label file is broken", file=sys.stderr, flush=True)
    comm.shutdown()
    time.sleep(20)
while True:
    comm.allreduce(np.ones(4, np.float32))
"""
# Rank 1 is stuck; the others run into the timeout.
STUCK = """
import time
import numpy as np
from slipstream import comm

comm.init()
comm.barrier()
if comm.rank() == 1:
    print("stuck here", flush=True)
    time.sleep(60)
comm.allreduce(np.ones(4, np.float32))
"""


@pytest.mark.slow("rank that others lost")
@pytest.mark.parametrize(
    ("script", "said"),
    [(SLOW_TO_END, "ValueError: the label file is broken"), (STUCK, "stuck here")],
)
def test_the_rank_that_the_others_lost_is_named(
    run: Run, tmp_path: Path, script: str, said: str
) -> None:
    (tmp_path / "train.py").write_text(script)
    options = ("-n", "3", "--show", "failed", "--env", "SLIPSTREAM_TIMEOUT=2")
    launch = run(*options, "train.py", cwd=tmp_path)
    assert launch.finish() == 1, launch.errors
    assert "slipstream: rank 1 on localhost failed first" in launch.errors
    assert "it had not ended yet, and rank " in launch.errors
    shown = launch.errors.partition("last lines of rank 1:")[2]
    assert shown.splitlines()[1].strip() == said
    others = [line for line in shown.splitlines() if " failed too, exit code 1: " in line]
    # One that is held up may lose the other, which has ended meanwhile.
    assert any("Error: " in line and "rank 1 (" in line for line in others)


def test_programs_are_told_of_all_that_failed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SLOW_TO_END)
    launch = run("-n", "3", "--json", "train.py", cwd=tmp_path)
    assert launch.finish() == 1, launch.errors
    (failure,) = (
        event["failure"]
        for event in map(json.loads, launch.output.splitlines())
        if event["event"] == "finished"
    )
    assert (failure["rank"], failure["exit_code"]) == (1, 1)
    assert failure["others"]
    assert {each["rank"] for each in failure["others"]} <= {0, 2}
    assert all(each["reason"] == "exit code 1" for each in failure["others"])


def test_a_rank_that_fails_alone_is_named_as_before(run: Run) -> None:
    launch = run("-n", "2", "sh", "-c", 'test "$RANK" = 0 || { echo why; exit 7; }; sleep 60')
    assert launch.finish() == 7
    assert "slipstream: rank 1 on localhost failed first" in launch.errors
    assert "failed too" not in launch.errors
