"""Ranks of an elastic job that are killed, stopped, asked to leave, and started again."""

import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from elastic_slots import reports, slot

from slipstream.cluster.launch.ports import find_free_port_pair

pytestmark = pytest.mark.multiprocess

Start = Callable[..., Any]

SLOTS = 8
LONG = "100000"  # steps, more than any test waits for


@pytest.fixture
def ports() -> list[int]:
    return [find_free_port_pair() for _ in range(SLOTS)]


def begin(start: Start, ports: Sequence[int], ranks: int, steps: str, **more: Any) -> Any:
    of_rank = {rank: slot(ports, rank, **more) for rank in range(ranks)}
    job = start(ranks, "elastic.py", steps, of_rank=of_rank)
    for rank in job.ranks:
        rank.wait_for('"epoch": 1')
    return job


def wait_for_epoch(job: Any, number: int, ranks: Sequence[int]) -> None:
    for rank in ranks:
        job.ranks[rank].wait_for(f'"epoch": {number}')


@pytest.mark.slow("survivors of a kill")
@pytest.mark.parametrize("victims", [(2,), (0,), (0, 1)])
@pytest.mark.parametrize("apart", [False, True], ids=["shm", "tcp"])
def test_survivors_go_on_in_the_same_processes(
    start: Start, ports: list[int], victims: tuple[int, ...], apart: bool
) -> None:
    job = begin(start, ports, 4, "300", apart=apart)
    time.sleep(0.2)
    for victim in victims:
        job.ranks[victim].signal(signal.SIGKILL)
    outputs = job.finish(*victims)
    assert len(outputs) == 4 - len(victims)
    for output in outputs:
        assert reports(output)[-1]["done"] == 300
        assert reports(output)[-1]["size"] == 4 - len(victims)
        assert len({report["pid"] for report in reports(output)}) == 1


def test_children_of_a_dead_rank_do_not_make_it_look_alive(start: Start, ports: list[int]) -> None:
    """One of two ranks goes on only if nobody listens at the address of the other one."""
    of_rank = {0: slot(ports, 0, ELASTIC_FORKS="1"), 1: slot(ports, 1)}
    job = start(2, "elastic.py", LONG, of_rank=of_rank)
    for rank in job.ranks:
        rank.wait_for('"epoch": 1')
    job.ranks[0].signal(signal.SIGKILL)
    killed = time.monotonic()
    wait_for_epoch(job, 2, [1])
    assert time.monotonic() - killed < 20


@pytest.mark.slow("ranks that join")
def test_new_ranks_join_at_a_commit_and_get_the_state(start: Start, ports: list[int]) -> None:
    job = begin(start, ports, 2, "400")
    for number in (2, 3):
        job.add(slot(ports, number, SLIPSTREAM_JOINS="1"))
    outputs = job.finish()
    for output in outputs:
        assert reports(output)[-1]["done"] == 400
        assert reports(output)[-1]["size"] == 4
    assert reports(outputs[2])[0]["step"] > 0


@pytest.mark.slow("ranks that join")
def test_ranks_that_have_joined_take_part_in_a_second_training(
    start: Start, ports: list[int]
) -> None:
    job = begin(start, ports, 2, "800", ELASTIC_RUNS="2")
    job.add(slot(ports, 2, SLIPSTREAM_JOINS="1", ELASTIC_RUNS="2"))
    for output in job.finish():
        done = [report for report in reports(output) if "done" in report]
        assert [(report["done"], report["size"]) for report in done] == [(800, 3), (800, 3)]
        epochs = [report["epoch"] for report in reports(output) if "epoch" in report]
        assert epochs == sorted(set(epochs))


@pytest.mark.slow("ranks that join")
def test_a_killed_rank_comes_back(start: Start, ports: list[int]) -> None:
    job = begin(start, ports, 3, "600")
    job.ranks[0].signal(signal.SIGKILL)
    job.add(slot(ports, 0, SLIPSTREAM_JOINS="1"))
    for output in job.finish(0):
        assert reports(output)[-1]["size"] == 3


@pytest.mark.slow("ranks that leave or stop")
@pytest.mark.parametrize("leaver", [0, 1])
def test_a_rank_that_gets_sigterm_leaves_without_a_fault(
    start: Start, ports: list[int], leaver: int
) -> None:
    job = begin(start, ports, 3, "300")
    job.ranks[leaver].signal(signal.SIGTERM)
    assert job.ranks[leaver].process.wait(60) == 143
    for output in job.finish(leaver):
        assert reports(output)[-1]["size"] == 2
        assert "is lost" not in output


@pytest.mark.slow("ranks that leave or stop")
@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_rank_is_fenced_and_joins_again(
    start: Start, ports: list[int], victim: int
) -> None:
    environ = {"SLIPSTREAM_PEER_TIMEOUT": "1"}
    job = begin(start, ports, 3, LONG, **environ)
    job.ranks[victim].signal(signal.SIGSTOP)
    wait_for_epoch(job, 2, [rank for rank in range(3) if rank != victim])
    job.ranks[victim].signal(signal.SIGCONT)
    wait_for_epoch(job, 3, range(3))
    assert {reports(rank.output)[-1]["size"] for rank in job.ranks} == {3}


@pytest.mark.slow("ranks that leave or stop")
def test_a_stopped_rank_ends_well_if_the_training_ends_while_it_waits(
    start: Start, ports: list[int]
) -> None:
    environ = {"SLIPSTREAM_PEER_TIMEOUT": "1", "ELASTIC_RESTS": "5"}
    job = begin(start, ports, 3, "300", **environ)
    job.ranks[2].signal(signal.SIGSTOP)
    for rank in job.ranks[:2]:
        rank.wait_for('"rests"')
    job.ranks[2].signal(signal.SIGCONT)
    outputs = job.finish()
    assert "the training has ended" in outputs[2]


@pytest.mark.slow("ranks that leave or stop")
def test_a_stopped_rank_leaves_while_it_waits_to_join_again(start: Start, ports: list[int]) -> None:
    environ = {"SLIPSTREAM_PEER_TIMEOUT": "1", "ELASTIC_RESTS": "20"}
    job = begin(start, ports, 3, "300", **environ)
    job.ranks[2].signal(signal.SIGSTOP)
    for rank in job.ranks[:2]:
        rank.wait_for('"rests"')
    job.ranks[2].signal(signal.SIGCONT)
    job.ranks[2].wait_for("this process joins the job again")
    job.ranks[2].signal(signal.SIGTERM)
    assert job.ranks[2].process.wait(10) == 143


@pytest.mark.slow("smallest number of ranks")
def test_less_than_half_do_not_go_on_without_the_rest(start: Start, ports: list[int]) -> None:
    """Two of three stopped ranks might train as well: the third waits for them."""
    job = begin(start, ports, 3, LONG, SLIPSTREAM_PEER_TIMEOUT="1")
    for victim in (0, 1):
        job.ranks[victim].signal(signal.SIGSTOP)
    job.ranks[2].wait_for("this rank waits to form a new epoch")
    assert [report["epoch"] for report in reports(job.ranks[2].output)] == [1]
    for victim in (0, 1):
        job.ranks[victim].signal(signal.SIGKILL)
    wait_for_epoch(job, 2, [2])
    assert reports(job.ranks[2].output)[-1]["size"] == 1


@pytest.mark.slow("smallest number of ranks")
def test_the_smallest_number_of_ranks_is_waited_for(start: Start, ports: list[int]) -> None:
    job = begin(start, ports, 2, "600", SLIPSTREAM_MIN_RANKS="2")
    job.ranks[1].signal(signal.SIGKILL)
    time.sleep(0.5)
    assert len(reports(job.ranks[0].output)) == 1
    job.add(slot(ports, 2, SLIPSTREAM_JOINS="1", SLIPSTREAM_MIN_RANKS="2"))
    for output in job.finish(1):
        assert reports(output)[-1]["size"] == 2


def test_an_error_of_the_script_is_no_fault(start: Start, ports: list[int]) -> None:
    job = begin(start, ports, 2, LONG, ELASTIC_FAILS_AT="30")
    for rank in job.ranks:
        assert rank.process.wait(60) == 1
        assert "ValueError: the script is wrong" in rank.output


@pytest.mark.slow("ranks that join")
def test_a_process_that_comes_too_late_looks_on(start: Start, ports: list[int]) -> None:
    """It ends at its time limit, or when its launcher ends it, as the training has ended."""
    job = begin(start, ports, 2, "20")
    job.finish()
    late = job.add(slot(ports, 2, SLIPSTREAM_JOINS="1"))
    time.sleep(2)
    assert late.process.poll() is None


def test_a_joiner_does_not_go_on_from_the_beginning_if_all_that_had_the_state_die(
    start: Start, ports: list[int]
) -> None:
    job = begin(start, ports, 1, LONG, ELASTIC_IN_RESET="die")
    joiner = job.add(slot(ports, 1, SLIPSTREAM_JOINS="1"))
    assert joiner.process.wait(60) == 1
    assert "all ranks that had the state of the training are lost" in joiner.output
    assert not reports(joiner.output)  # it never began
    job.finish(0, 1)


def test_a_joiner_goes_on_as_a_member_if_another_member_is_lost_before_they_meet(
    start: Start, ports: list[int]
) -> None:
    """It waited for ten minutes for a member that could admit it, and the launcher with it."""
    job = begin(start, ports, 1, LONG, ELASTIC_DIES_AT="rank 0 of 2 in epoch 2")
    joiner = job.add(slot(ports, 1, SLIPSTREAM_JOINS="1"))
    assert joiner.process.wait(60) == 1
    assert "all ranks that had the state of the training are lost" in joiner.output
    job.finish(0, 1)


def test_first_ranks_go_on_from_the_beginning_while_nobody_has_trained(
    start: Start, ports: list[int]
) -> None:
    job = begin(start, ports, 3, "100")
    job.ranks[2].signal(signal.SIGKILL)
    for output in job.finish(2):
        assert reports(output)[-1]["done"] == 100


@pytest.mark.slow("commits that are errors")
def test_a_rank_whose_commits_no_other_rank_has_ends_with_an_error(
    start: Start, ports: list[int]
) -> None:
    of_rank = {rank: slot(ports, rank) for rank in range(3)}
    of_rank[1]["ELASTIC_SAVES_AT_10"] = "3"
    job = start(3, "elastic.py", "400", of_rank=of_rank)
    for rank in job.ranks:
        rank.wait_for('"epoch": 1')
    time.sleep(0.5)
    job.ranks[2].signal(signal.SIGKILL)
    assert job.ranks[1].process.wait(60) == 1
    assert "this rank cannot go back to where the others are: commit" in job.ranks[1].output
    (first,) = job.finish(1, 2)
    assert reports(first)[-1]["done"] == 400


@pytest.mark.slow("commits that are errors")
def test_a_commit_in_a_reset_callback_is_an_error(start: Start, ports: list[int]) -> None:
    job = begin(start, ports, 1, LONG, ELASTIC_IN_RESET="commit")
    job.add(slot(ports, 1, SLIPSTREAM_JOINS="1"))
    late = job.add(slot(ports, 2, SLIPSTREAM_JOINS="1"))
    assert job.ranks[0].process.wait(60) == 1
    assert "a reset callback has called commit() or check()" in job.ranks[0].output
    late.process.kill()
    job.ranks[1].process.kill()
    job.finish(0, 1, 2)
