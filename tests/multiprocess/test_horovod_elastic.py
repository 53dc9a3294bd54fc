"""Ranks of an elastic job with Horovod's names that are killed, stopped, asked to leave, added."""

import json
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from elastic_slots import slot

from slipstream.cluster.launch.ports import find_free_port_pair

pytest.importorskip("torch")
pytestmark = pytest.mark.multiprocess

Start = Callable[..., Any]

SLOTS = 4


@pytest.fixture
def ports() -> list[int]:
    return [find_free_port_pair() for _ in range(SLOTS)]


def reports(rank: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rank.output.splitlines() if line.startswith("{")]


def begin(start: Start, ports: Sequence[int], ranks: int, *arguments: str, **more: str) -> Any:
    of_rank = {rank: slot(ports, rank, **more) for rank in range(ranks)}
    job = start(ranks, "horovod_elastic.py", *arguments, of_rank=of_rank)
    for rank in job.ranks:
        rank.wait_for('"epoch": 1')
    return job


def join(job: Any, ports: Sequence[int], number: int, **more: str) -> Any:
    return job.add(slot(ports, number, SLIPSTREAM_JOINS="1", **more))


@pytest.mark.slow("elastic training over Horovod")
@pytest.mark.parametrize("victims", [(1,), (0,), (0, 1)])
def test_survivors_apply_each_sample_of_an_epoch_once(
    start: Start, ports: list[int], victims: tuple[int, ...]
) -> None:
    job = begin(start, ports, 4, "8")
    for victim in victims:
        job.ranks[victim].signal(signal.SIGKILL)
    job.finish(*victims)
    for number, rank in enumerate(job.ranks):
        if number not in victims:
            assert reports(rank)[-1]["done"] == 8
            assert reports(rank)[-1]["size"] == 4 - len(victims)
            assert len({report["pid"] for report in reports(rank)}) == 1


@pytest.mark.slow("elastic training over Horovod")
def test_a_job_of_one_rank_grows_and_the_new_ranks_get_the_state(
    start: Start, ports: list[int]
) -> None:
    job = begin(start, ports, 1, "12", "0.02")
    for number in (1, 2):
        join(job, ports, number)
    job.finish()
    for rank in job.ranks:
        assert reports(rank)[-1]["done"] == 12
        assert reports(rank)[-1]["size"] == 3
    steps = {reports(rank)[-1]["steps"] for rank in job.ranks}
    assert len(steps) == 1


@pytest.mark.slow("elastic training over Horovod")
def test_a_rank_that_gets_sigterm_leaves_without_a_fault(start: Start, ports: list[int]) -> None:
    job = begin(start, ports, 3, "10")
    job.ranks[0].signal(signal.SIGTERM)
    assert job.ranks[0].process.wait(60) == 143
    for output in job.finish(0):
        assert "is lost" not in output
    assert {reports(rank)[-1]["size"] for rank in job.ranks[1:]} == {2}


@pytest.mark.slow("elastic training over Horovod")
def test_a_stopped_rank_joins_again_and_goes_on(start: Start, ports: list[int]) -> None:
    job = begin(start, ports, 3, "40", SLIPSTREAM_PEER_TIMEOUT="1")
    job.ranks[1].signal(signal.SIGSTOP)
    for number in (0, 2):
        job.ranks[number].wait_for('"epoch": 2')
    job.ranks[1].signal(signal.SIGCONT)
    for rank in job.ranks:
        rank.wait_for('"epoch": 3')
    job.finish()
    assert {reports(rank)[-1]["size"] for rank in job.ranks} == {3}


@pytest.mark.slow("elastic training over Horovod")
@pytest.mark.parametrize("changes", [4])
def test_changes_leave_nothing_open(start: Start, ports: list[int], changes: int) -> None:
    job = begin(start, ports, 2, "100000", "0.002")
    for change in range(changes):
        late = join(job, ports, 2)
        late.wait_for('"epoch"')
        late.signal(signal.SIGKILL)
        late.process.wait()
        for rank in job.ranks[:2]:
            rank.wait_for(f'"epoch": {2 * change + 3}')
    early, last = (
        next(r for r in reports(job.ranks[0]) if r["epoch"] == e) for e in (5, 2 * changes + 1)
    )
    assert last["threads"] == early["threads"]
    assert last["files"] == early["files"]
    assert last["resident"] < early["resident"] + (16 << 20)
