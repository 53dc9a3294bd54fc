"""Checkpoints of ranks that are processes: sharded tensors, kills, and the example."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from elastic_slots import reports, slot

from slipstream.cluster.launch.ports import find_free_port_pair

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "06_checkpoints" / "train.py"
SLIPSTREAM = Path(sys.executable).with_name("slipstream")
LIMIT_SECONDS = 120.0

pytestmark = pytest.mark.multiprocess


@pytest.mark.slow("checkpoint of ranks")
def test_another_number_of_ranks_reads_sharded_tensors(start, tmp_path) -> None:
    folder = str(tmp_path / "checkpoints")
    start(4, "checkpoint_shards.py", "save", folder).finish()
    for num_ranks in (1, 2):
        start(num_ranks, "checkpoint_shards.py", "restore", folder).finish()


def start_elastic(start, mode: str, folder: Path, killed: int):
    ports = [find_free_port_pair() for _ in range(3)]
    of_rank = {rank: slot(ports, rank) for rank in range(3)}
    return start(3, "checkpoint_elastic.py", mode, str(folder), str(killed), of_rank=of_rank)


@pytest.mark.slow("elastic checkpoints")
@pytest.mark.parametrize(("mode", "killed"), [("comm", 0), ("torch", 0), ("torch", 1)])
def test_survivors_give_up_the_save_of_a_rank_that_was_killed(
    start, tmp_path, mode, killed
) -> None:
    """They once waited for half an hour, and their processes did not end before."""
    job = start_elastic(start, mode, tmp_path / "checkpoints", killed)
    task = "write the manifest" if killed == 0 else "write its part"
    for output in job.finish(killed):
        assert reports(output)[0] == {"step": 0, "size": 3}
        assert reports(output)[1]["size"] == 2
        assert reports(output)[-1] == {"whole": [40, 30]}
    outputs = [rank.output for number, rank in enumerate(job.ranks) if number != killed]
    assert any(f"rank {killed}, which did not {task}, " in output for output in outputs)


@pytest.mark.slow("elastic checkpoints")
def test_a_checkpointer_of_ranks_that_have_changed_says_so(start, tmp_path) -> None:
    """Its next save once waited for half an hour for the one before."""
    job = start_elastic(start, "outside", tmp_path / "checkpoints", killed=1)
    for number in (0, 2):
        assert job.ranks[number].process.wait(LIMIT_SECONDS) == 1
        assert "the ranks of the job have changed since this Checkpointer" in (
            job.ranks[number].output
        )


def test_a_rank_that_leaves_the_job_in_order_ends_its_save(start, tmp_path) -> None:
    """Its engine is closed before its file is written, which is no loss of the rank."""
    for output in start(2, "checkpoint_elastic.py", "leave", str(tmp_path / "x")).finish():
        assert reports(output) == [{"whole": [1]}]


@pytest.mark.slow("short form of a soak test")
def test_kills_during_saves_lose_nothing() -> None:
    """A short run; `make soak` kills a hundred times."""
    script = str(ROOT / "tests" / "soak" / "checkpoint_kills.py")
    options = ("--kills", "3", "--elements", "200000", "--seed", "5")
    done = subprocess.run(
        [sys.executable, script, *options], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "a whole checkpoint was found after each (2 ranks, seed 5)" in done.stdout


def slipstream(folder: Path, *arguments: str) -> str:
    """Run `slipstream` in a folder; return what it printed."""
    done = subprocess.run(
        [SLIPSTREAM, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def run_example(folder: Path, num_ranks: int, *options: str) -> str:
    return slipstream(folder, "run", "-n", str(num_ranks), str(EXAMPLE), *options)


def losses(text: str) -> list[tuple[str, str]]:
    return re.findall(r"step (\d+): loss ([\d.]+)", text)


@pytest.mark.slow("checkpoint of ranks")
def test_the_example_continues_with_the_same_numbers(tmp_path) -> None:
    run_example(tmp_path, 2, "--steps", "40", "--every", "20", "--checkpoints", "a")
    text = run_example(tmp_path, 2, "--steps", "80", "--every", "20", "--checkpoints", "a")
    assert "restored step 40 from" in text
    at_once = run_example(tmp_path, 2, "--steps", "80", "--every", "20", "--checkpoints", "b")
    assert losses(text) == losses(at_once)[2:]
    more = run_example(tmp_path, 3, "--steps", "100", "--every", "20", "--checkpoints", "a")
    assert "'points' stays as it is: fewer ranks saved" in more
    entries = json.loads(slipstream(tmp_path, "checkpoints", "a", "--verify", "--json"))
    assert [(entry["step"], entry["whole"], entry["num_ranks"]) for entry in entries] == [
        *((100, True, 3), (80, True, 2), (60, True, 2)),
    ]
    assert slipstream(tmp_path, "checkpoints", "a").count("whole") == 3
