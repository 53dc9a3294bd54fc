"""A job of one rank: who it is, its process sets and its timeline; and hosts by arithmetic."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from slipstream import comm  # noqa: E402
from slipstream.errors import ConfigError  # noqa: E402
from slipstream.horovod.common import basics  # noqa: E402
from slipstream.horovod.common.exceptions import RefusedError  # noqa: E402
from slipstream.horovod.common.process_sets import ProcessSet, global_process_set  # noqa: E402
from slipstream.horovod.job import (  # noqa: E402
    HorovodJob,
    is_initialized,
    job,
    join_job,
    leave_job,
    queue_of,
    register,
    unregister,
)
from slipstream.horovod.request import Request  # noqa: E402
from slipstream.horovod.timeline import Timeline  # noqa: E402
from slipstream.horovod.torch.arrays import TorchArrays  # noqa: E402
from slipstream.settings import HorovodSettings  # noqa: E402


@pytest.fixture
def joined() -> Iterator[HorovodJob]:
    """Yield the job of this process, to which process sets may be added."""
    join_job(TorchArrays(), is_dynamic=True)
    yield job()
    leave_job()


def add(name: str) -> Any:
    """Return the sum of a tensor over all ranks."""
    request = Request(kind="allreduce", name=name, array=torch.ones(2))
    return queue_of(global_process_set).submit([request])[0].wait()


def hosts(*leaders: int) -> HorovodJob:
    """Return a job whose hosts begin with these ranks."""

    class Group:
        size = len(leaders)

    group: Any = Group()
    settings = HorovodSettings.from_environment({})
    return HorovodJob(
        world=group,
        engine=group,
        settings=settings,
        arrays=TorchArrays(),
        leaders=leaders,
        is_dynamic=False,
        timeline=Timeline(0),
    )


def test_ranks_are_counted_on_their_host_and_across_hosts() -> None:
    mixed = hosts(0, 1, 0, 1, 0)
    assert [mixed.local_rank(each) for each in range(5)] == [0, 0, 1, 1, 2]
    assert mixed.local_ranks(3) == [1, 3]
    assert [mixed.cross_ranks(each) for each in (0, 3, 4)] == [[0, 1], [2, 3], [4]]
    assert [each.is_homogeneous() for each in (mixed, hosts(0, 0, 2, 2), hosts(0))] == [
        False,
        True,
        True,
    ]


def test_without_a_job_everything_says_so() -> None:
    assert not is_initialized()
    leave_job()
    for call in (basics.rank, basics.stop_timeline, global_process_set.included):
        with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd\.init"):
            call()
    with pytest.raises(RefusedError):
        queue_of(global_process_set)


def test_one_rank_is_all_there_is(joined: HorovodJob) -> None:
    join_job(TorchArrays())
    assert job() is joined
    assert is_initialized()
    assert (basics.rank(), basics.local_rank(), basics.cross_rank()) == (0, 0, 0)
    assert (basics.size(), basics.local_size(), basics.cross_size()) == (1, 1, 1)
    assert basics.is_homogeneous()
    assert (global_process_set.size(), global_process_set.rank()) == (1, 0)
    assert global_process_set.included()
    assert str(global_process_set) == "ProcessSet(process_set_id=0, ranks=[0])"
    assert add("a").tolist() == [1, 1]
    leave_job()
    assert (is_initialized(), comm.is_initialized()) == (False, False)
    assert global_process_set.process_set_id == 0


def test_process_sets_are_refused_that_are_no_new_ranks(joined: HorovodJob) -> None:
    for ranks in ([], [1], [-1], [0, 0]):
        with pytest.raises(ValueError, match="allowed: each of the ranks 0 to 0 at most once"):
            register(ProcessSet(ranks))
    with pytest.raises(ValueError, match="add a duplicate process set: ProcessSet"):
        register(ProcessSet([0]))
    assert basics._get_process_set_ids_and_ranks() == {0: [0]}
    assert joined.next_set == 1
    for wrong in ("ab", [0.5], 3):
        with pytest.raises(ValueError, match="should be initialized with a list of process ranks"):
            ProcessSet(wrong)


def test_a_set_that_is_not_registered_has_no_size_and_no_queue(joined: HorovodJob) -> None:
    stranger = ProcessSet([0])
    assert (stranger.size(), stranger.rank(), stranger.process_set_id) == (None, None, None)
    with pytest.raises(ValueError, match="does not exist, or has not been registered"):
        queue_of(stranger)
    stranger.register(1, [5])
    joined.sets[1] = stranger
    assert (stranger.size(), stranger.included()) == (1, False)
    with pytest.raises(ValueError, match="Process is not part of provided process set"):
        stranger.rank()
    with pytest.raises(ValueError, match="Rank 0 is not a member of the provided process set"):
        queue_of(stranger)
    assert unregister(stranger) is True
    assert (stranger.process_set_id, unregister(stranger)) == (None, False)
    assert unregister(global_process_set) is False


def test_a_clone_of_a_set_is_recognized_until_the_job_is_left(joined: HorovodJob) -> None:
    clone, other = ProcessSet([0]), ProcessSet([0, 1])
    join_job(TorchArrays(), [clone])
    assert clone.process_set_id == 0
    assert joined.clones == [clone]
    with pytest.raises(ValueError, match=r"called before without .*ranks=\[0, 1\]\); call add_pr"):
        join_job(TorchArrays(), [other])


def test_sets_are_added_and_removed_only_where_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, message in (("0", "to allow (adding|removing) process sets"), ("1", "duplicate")):
        monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", variable)
        join_job(TorchArrays())
        with pytest.raises(ValueError, match=message):
            basics.add_process_set([0])
        if variable == "1":
            assert basics.remove_process_set(global_process_set) is False
        else:
            with pytest.raises(ValueError, match="to allow removing process sets after"):
                basics.remove_process_set(global_process_set)
        leave_job()


def test_a_launcher_that_counts_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"HOROVOD_SIZE is 2, but this job has 1 rank"):
        join_job(TorchArrays())
    assert not comm.is_initialized()
    monkeypatch.setenv("HOROVOD_SIZE", "1")
    join_job(TorchArrays())
    leave_job()


def test_variables_without_a_meaning_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOROVOD_NO_MEANING", "1")
    join_job(TorchArrays())
    leave_job()
    assert caplog.messages == ["these variables have no effect here: HOROVOD_NO_MEANING"]


@pytest.mark.parametrize("marks", ["0", "1"])
def test_a_timeline_shows_who_waited_and_rounds_where_they_are_marked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, marks: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOROVOD_TIMELINE", str(tmp_path / "trace.json"))
    monkeypatch.setenv("HOROVOD_TIMELINE_MARK_CYCLES", marks)
    join_job(TorchArrays())
    add("mine")
    with caplog.at_level(logging.WARNING):
        basics.start_timeline(str(tmp_path / "other.json"))
    leave_job()
    assert "a timeline is being recorded to" in caplog.text
    assert not (tmp_path / "other.json").exists()
    seen = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = {each["args"]["name"]: each for each in seen if each["ph"] == "M"}
    assert named["tensors of rank 0"]["pid"] == 1_000_000
    waits = [each for each in seen if each["name"] == "NEGOTIATE_ALLREDUCE"]
    assert [each["tid"] for each in waits] == [named["mine"]["tid"]]
    assert ("rounds" in named) is (marks == "1")
    assert any(each["name"] == "CYCLE_START" for each in seen) is (marks == "1")


def test_a_timeline_can_be_left_for_later_and_is_of_rank_0(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    join_job(TorchArrays())
    assert comm.timeline.path() is None
    Timeline(1).start(str(tmp_path / "one.json"), marks_cycles=False)
    assert comm.timeline.path() is None
    Timeline(1).start(str(tmp_path / "{rank}.json"), marks_cycles=False)
    assert basics.stop_timeline() == tmp_path / "0.json"
    assert basics.stop_timeline() is None
    leave_job()


def test_what_there_is_and_what_there_is_not() -> None:
    built = (basics.gloo_built(), basics.gloo_enabled(), basics.mpi_built(), basics.mpi_enabled())
    assert built == (True, True, False, False)
    assert basics.nccl_built() == 0
    assert basics.cuda_built()
    others = (basics.ddl_built(), basics.ccl_built(), basics.rocm_built())
    assert others == (False,) * 3
    with pytest.raises(ValueError, match="Horovod MPI is not enabled"):
        basics.mpi_threads_supported()
