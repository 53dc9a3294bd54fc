"""Elastic training with FSDP2 and ZeRO: shards of lost ranks come from the copies of others."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elastic_slots import reports, slot

from slipstream.cluster.launch.ports import find_free_port_pair

pytestmark = pytest.mark.multiprocess

Start = Callable[..., Any]

STEPS = "400"
PROGRAM = Path(__file__).parent / "ranks" / "elastic_sharded.py"


@pytest.fixture(scope="module")
def reference() -> list[float]:
    """What one process computes."""
    command = [sys.executable, str(PROGRAM), "single", STEPS, "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return reports(done.stdout)[-1]["digest"]


@pytest.mark.slow("elastic training of shards")
@pytest.mark.parametrize("mode", ["fsdp", "zero"])
def test_shards_of_lost_ranks_come_from_copies(
    start: Start, reference: list[float], mode: str
) -> None:
    ports = [find_free_port_pair() for _ in range(4)]
    of_rank = {rank: slot(ports, rank) for rank in range(3)}
    job = start(3, "elastic_sharded.py", mode, STEPS, "1", of_rank=of_rank)
    job.add(slot(ports, 3, SLIPSTREAM_JOINS="1"))
    for rank in job.ranks[:3]:
        rank.wait_for('"epoch": 1')
    job.ranks[1].signal(signal.SIGKILL)
    job.ranks[3].wait_for('"epoch": 3')
    job.ranks[0].signal(signal.SIGKILL)
    for output in job.finish(0, 1):
        assert reports(output)[-1]["digest"] == pytest.approx(reference, rel=1e-9)


@pytest.mark.slow("elastic training of shards")
def test_shards_without_copies_come_from_the_checkpoint(
    start: Start, reference: list[float], tmp_path: Path
) -> None:
    ports = [find_free_port_pair() for _ in range(3)]
    of_rank = {rank: slot(ports, rank) for rank in range(3)}
    folder = str(tmp_path / "checkpoints")
    job = start(3, "elastic_sharded.py", "fsdp", STEPS, "0", folder, of_rank=of_rank)
    while not list(tmp_path.glob("checkpoints/*/manifest.json")):
        job.ranks[0].wait_for('"epoch": 1')
    job.ranks[1].signal(signal.SIGKILL)
    for output in job.finish(1):
        again = reports(output)[1]
        assert (again["step"] % 10, again["size"]) == (0, 2)
        assert reports(output)[-1]["digest"] == pytest.approx(reference, rel=1e-9)
        assert "nobody has all parts of it, for example that of rank 1 of the 3" in output
        assert f"the training goes back to the checkpoint of step {again['step']}" in output
        assert "Pass a Checkpointer" not in output, "the script has passed one"


@pytest.mark.slow("elastic training of shards")
def test_shards_that_are_lost_end_the_job_with_advice(start: Start) -> None:
    ports = [find_free_port_pair() for _ in range(3)]
    of_rank = {rank: slot(ports, rank) for rank in range(3)}
    job = start(3, "elastic_sharded.py", "fsdp", "100000", "0", of_rank=of_rank)
    for rank in job.ranks:
        rank.wait_for('"epoch": 1')
    job.ranks[1].signal(signal.SIGKILL)
    for number in (0, 2):
        assert job.ranks[number].process.wait(60) == 1
        assert "Pass a Checkpointer to attach(), or ask for more copies" in job.ranks[number].output
