"""Flight records of elastic jobs: each fault has an account of its own."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.multiprocess

Run = Callable[..., Any]  # conftest.Launch is what it returns
SLIPSTREAM = Path(sys.executable).with_name("slipstream")
WENT_ON = "slipstream: there were faults, but the job went on: slipstream explain "
THREE = ("--min", "2", "--max", "3", "elastic_faults.py")


def members(launch: Any, epoch: int) -> dict[int, int]:
    """Return the process of each rank of an epoch, as the processes have said it."""
    found = re.findall(rf"epoch {epoch}: rank (\d+) of \d+ is (\d+);", launch.output)
    return {int(rank): int(pid) for rank, pid in found}


def explained(folder: Path, *, cwd: Path | None = None) -> dict[str, Any]:
    command = [SLIPSTREAM, "explain", folder, "--json"]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd)
    return json.loads(told.stdout)


def folder_of_new_start(launch: Any) -> Path:
    """Return the folder that the last line of a job that started again names."""
    assert launch.finish() == 0, launch.errors
    begin = "slipstream: there were faults; 1 time no member was left and the job started again: "
    (line,) = (line for line in launch.errors.splitlines() if line.startswith(begin))
    return Path(line.rpartition("slipstream explain ")[2])


@pytest.mark.slow("records of an elastic job")
def test_each_fault_has_an_account(
    run: Run, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    launch = run(*THREE, tmp_path)
    wait_until(lambda: len(members(launch, 1)) == 3)
    killed = members(launch, 1)[1]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: len(members(launch, 3)) == 3)  # another process has joined
    third = members(launch, 3)
    (tmp_path / "raise.0").touch()
    wait_until(lambda: len(members(launch, 5)) == 3)
    (tmp_path / "stop").touch()
    assert launch.finish() == 0, launch.errors

    (line,) = (line for line in launch.errors.splitlines() if line.startswith(WENT_ON))
    folder = Path(line.removeprefix(WENT_ON))
    assert [path.name[:10] for path in sorted(folder.glob("epoch-*"))] == [
        "epoch-0001",
        "epoch-0003",
    ]
    told = explained(folder)
    assert told["kind"] == "exception"
    assert told["ranks_at_fault"] == [0]
    assert f"process {third[0]}) failed first" in told["headline"]
    assert "ValueError: bad sample 17, at ranks/elastic_faults.py:" in told["headline"]
    assert {row["rank"]: row["pid"] for row in told["rows"]} == third
    assert [row["end"] for row in told["rows"]] == ["exit code 1, ValueError", "went on", "went on"]
    assert told["survived"] == ["ranks 1, 2 went on in epoch 4, where ranks may have other numbers"]
    (other,) = told["others"]
    assert f"process {killed}) was killed by signal 9 (SIGKILL)" in other
    first = explained(Path(other.rpartition(" ")[2].removesuffix(")")))
    assert first["ranks_at_fault"] == [1]
    # One of the others or both, in the gradient's allreduce or in that of the commit.
    assert " in allreduce '" in first["headline"]


@pytest.mark.slow("records of an elastic job")
def test_a_crash_that_nobody_survives_has_an_account(
    run: Run, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    launch = run("--min", "1", "--max", "1", "elastic_faults.py", tmp_path)
    wait_until(lambda: len(members(launch, 1)) == 1)
    (tmp_path / "crash.0").touch()
    launch.wait_for("no member is left, so the job starts again")
    (tmp_path / "stop").touch()
    told = explained(folder_of_new_start(launch))
    assert told["kind"] == "crashed"
    assert told["ranks_at_fault"] == [0]
    assert "elastic_faults.py" in told["headline"]
    assert any("string_at" in each for each in told["details"])
    (other,) = told["others"]
    assert "No member was left, so the job started again" in other


@pytest.mark.slow("records of an elastic job")
def test_a_fault_that_leaves_nobody_who_could_write_a_record_has_an_account(
    run: Run, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    launch = run("--min", "2", "--max", "2", "elastic_faults.py", tmp_path)
    wait_until(lambda: len(members(launch, 1)) == 2)
    killed = members(launch, 1)
    for pid in killed.values():
        os.kill(pid, signal.SIGSTOP)  # so that neither notices that the other one is gone
    for pid in killed.values():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: launch.output.count("epoch 1: rank 1 of 2") == 2)
    (tmp_path / "stop").touch()
    told = explained(folder_of_new_start(launch))
    assert told["kind"] == "killed"
    assert {row["pid"] for row in told["rows"]} == set(killed.values())
    (other,) = told["others"]
    assert "epoch 1 ended with 2 x signal 9 (SIGKILL) on host " in other


@pytest.mark.slow("records of an elastic job")
def test_changes_without_a_fault_leave_nothing(
    run: Run, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    launch = run(*THREE, tmp_path)
    wait_until(lambda: len(members(launch, 1)) == 3)
    os.kill(members(launch, 1)[1], signal.SIGTERM)  # it leaves, and another one joins
    wait_until(lambda: len(members(launch, 3)) == 3)
    (tmp_path / "stop").touch()
    assert launch.finish() == 0, launch.errors
    assert "explain" not in launch.errors
    assert not (tmp_path / "flight").exists()
