"""What a user sees when something goes wrong: at once, on every rank, and by name."""

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.multiprocess

Start = Callable[..., Any]

TCP = {rank: {"SLIPSTREAM_HOST_ID": f"host {rank}"} for rank in range(4)}
AT_ONCE_SECONDS = 3.0  # less than the silence after which a rank counts as dead


def failure(output: str) -> tuple[str, float, str]:
    """Return the class of the error that a scenario printed, after how long, and its message."""
    match = re.search(r"^(\w+Error) after ([\d.]+) s: (.*)", output, re.MULTILINE | re.DOTALL)
    assert match is not None, output
    return match[1], float(match[2]), match[3]


@pytest.mark.parametrize("of_rank", [{}, TCP], ids=["shm", "tcp"])
def test_a_rank_that_is_killed_is_named_at_once(start: Start, of_rank: Any) -> None:
    job = start(3, "scenario.py", "killed", of_rank=of_rank)
    for rank in job.ranks:
        rank.wait_for("ready")
    job.ranks[2].signal(signal.SIGKILL)
    killed_at = time.monotonic()
    for output in job.finish(2):
        kind, _, message = failure(output)
        assert kind == "PeerError"
        assert "allreduce 'gradient' of group 'world': rank 2 (" in message
        assert "is gone" in message
    assert time.monotonic() - killed_at < AT_ONCE_SECONDS


@pytest.mark.slow("connections that are cut")
@pytest.mark.parametrize("tls", ["0", "1"])
def test_connections_that_are_cut_are_made_again(start: Start, tls: str) -> None:
    environ = {"SLIPSTREAM_TLS": tls}
    for output in start(3, "scenario.py", "cut", environ=environ, of_rank=TCP).finish():
        match = re.search(r"reopened (\d+) of (\d+)", output)
        assert match is not None, output
        assert int(match[1]) > 0


@pytest.mark.parametrize("of_rank", [{}, TCP], ids=["shm", "tcp"])
def test_those_who_survive_a_rank_go_on_in_a_group_of_their_own(start: Start, of_rank: Any) -> None:
    job = start(3, "scenario.py", "survived", of_rank=of_rank)
    for rank in job.ranks:
        rank.wait_for("ready")
    job.ranks[2].signal(signal.SIGKILL)
    for output in job.finish(2):
        assert "2 of 3 go on" in output
        assert output.count("PeerError after") == 2, output


@pytest.mark.parametrize("of_rank", [{}, TCP], ids=["shm", "tcp"])
def test_forked_children_do_not_keep_a_killed_rank_alive(start: Start, of_rank: Any) -> None:
    job = start(2, "scenario.py", "killed_with_children", of_rank=of_rank)
    for rank in job.ranks:
        rank.wait_for("ready")
    children = psutil.Process(job.ranks[1].process.pid).children()
    assert len(children) == 2
    job.ranks[1].signal(signal.SIGKILL)
    killed_at = time.monotonic()
    assert "rank 1 (" in failure(job.ranks[0].finish())[2]
    assert time.monotonic() - killed_at < AT_ONCE_SECONDS
    assert all(child.is_running() for child in children)


@pytest.mark.slow("ranks that wait")
@pytest.mark.parametrize("of_rank", [{}, TCP], ids=["shm", "tcp"])
def test_a_rank_that_is_stopped_is_named_after_the_peer_timeout(start: Start, of_rank: Any) -> None:
    environ = {"SLIPSTREAM_PEER_TIMEOUT": "1.5"}
    job = start(3, "scenario.py", "killed", environ=environ, of_rank=of_rank)
    for rank in job.ranks:
        rank.wait_for("ready")
    job.ranks[2].signal(signal.SIGSTOP)
    for output in job.finish(2):
        kind, seconds, message = failure(output)
        assert kind in ("PeerError", "PeerTimeoutError")
        assert seconds >= 1.4
        assert re.search(r"rank 2 \(.*\) has been silent for [\d.]+ s", message), message


def test_a_child_cannot_use_the_engine_and_its_parent_goes_on(start: Start) -> None:
    for output in start(2, "scenario.py", "forked").finish():
        assert output.count("UsageError after 0.0 s: the engine was used in a forked child") == 4
        assert "parent has 2" in output


def test_an_abort_from_another_thread_ends_the_wait_of_every_rank(start: Start) -> None:
    for output in start(3, "scenario.py", "aborted").finish():
        kind, _, message = failure(output)
        assert kind == "AbortedError"
        assert "rank 0 aborted group 'world': the user pressed stop" in message
        assert "3 ranks again" in output


def test_an_operation_that_takes_too_long_names_who_is_missing_on_every_rank(start: Start) -> None:
    outputs = start(3, "scenario.py", "timed_out").finish()
    for output in outputs:
        kind, seconds, message = failure(output)
        assert kind == "PeerTimeoutError"
        assert seconds < 30
        assert "allreduce 'late' of group 'world'" in message
        assert re.search(r"rank 2 \(.*\) has not submitted it", message), message


def test_wait_gives_up_while_the_operation_goes_on(start: Start) -> None:
    outputs = start(2, "scenario.py", "waited").finish()
    kind, _, message = failure(outputs[0])
    assert kind == "PeerTimeoutError"
    assert "wait() has reached its limit of 0.2 s: allreduce 'patient' of group 'world'" in message
    assert re.search(r"rank 1 \(.*\) has not submitted it; the operation continues", message)
    assert "; call wait() again" in message
    assert "2 came of it" in outputs[0]


def test_a_child_that_is_forked_after_the_end_can_begin_anew(start: Start) -> None:
    for output in start(2, "scenario.py", "reborn").finish():
        assert "2 children met" in output


def test_a_straggler_is_reported_and_not_failed(start: Start) -> None:
    job = start(2, "scenario.py", "straggling", environ={"SLIPSTREAM_STALL_SECONDS": "0.5"})
    job.ranks[0].wait_for("WARNING slipstream.engine rank 0: allreduce 'late gradient'")
    job.ranks[0].wait_for(
        "has not submitted it; the operation continues until its timeout of 1800 s"
    )
    job.ranks[0].wait_for("timeout of 1800 s; nothing has changed since the last report")
    job.ranks[1].signal(signal.SIGUSR1)
    first, second = job.finish()
    assert re.search(r"done, [1-9]\d* stalls reported", first)
    assert "done, 0 stalls reported" in second


@pytest.mark.slow("ranks that wait")
@pytest.mark.parametrize("of_rank", [{}, TCP], ids=["shm", "tcp"])
def test_waiting_does_not_burn_a_core(start: Start, of_rank: Any) -> None:
    for output in start(3, "scenario.py", "idle", of_rank=of_rank).finish()[:2]:
        used = re.search(r"used ([\d.]+) of a core", output)
        assert used is not None, output
        assert float(used[1]) < 0.2


@pytest.mark.parametrize(
    ("what", "passed"),
    [
        ("size", ("allreduce sum float32 x 8", "allreduce sum float32 x 9")),
        ("dtype", ("allreduce sum float32 x 8", "allreduce sum int32 x 8")),
        ("operation", ("allreduce sum float64 x 8", "allreduce max float64 x 8")),
        ("collective", ("barrier", "allreduce sum float64 x 8")),
        ("root", ("broadcast float64 x 8 root 0", "broadcast float64 x 8 root 1")),
    ],
)
def test_a_mismatch_shows_on_every_rank_what_each_passed(
    start: Start, what: str, passed: tuple[str, str]
) -> None:
    for output in start(2, "scenario.py", "mismatched", what).finish():
        kind, seconds, message = failure(output)
        assert kind == "MismatchError", output
        assert seconds < 10
        for rank, each in enumerate(passed):
            assert f"rank {rank}: {each}" in message


def test_calls_that_are_wrong_on_one_rank_leave_the_group_whole(start: Start) -> None:
    for output in start(2, "scenario.py", "wrong").finish():
        assert output.count("UsageError after") == 19
        assert "2 ranks still" in output


@pytest.mark.parametrize("of_rank", [{}, TCP], ids=["shm", "tcp"])
def test_ranks_may_leave_right_after_their_last_operation(start: Start, of_rank: Any) -> None:
    for output in start(2, "scenario.py", "leaving", of_rank=of_rank).finish():
        assert "done" in output


def test_two_threads_use_two_groups_at_once(start: Start) -> None:
    for output in start(2, "scenario.py", "two_threads").finish():
        assert "both are right" in output


def test_arrays_of_handles_that_are_thrown_away_live_until_the_end(start: Start) -> None:
    for output in start(2, "scenario.py", "dropped").finish():
        assert "the last one is right" in output


@pytest.mark.slow("long or large")
@pytest.mark.parametrize("of_rank", [{}, TCP], ids=["shm", "tcp"])
def test_nothing_grows_over_100_worlds_and_10000_reductions(start: Start, of_rank: Any) -> None:
    for output in start(2, "scenario.py", "ages", of_rank=of_rank).finish():
        assert "cycles" in output


@pytest.mark.skipif(psutil.virtual_memory().total < 16 * 2**30, reason="needs 12 GiB of memory")
@pytest.mark.alone  # it needs half of this machine's memory
@pytest.mark.slow("long or large")
@pytest.mark.parametrize("of_rank", [{}, TCP], ids=["shm", "tcp"])
def test_more_than_4_gigabytes_at_once(start: Start, of_rank: Any) -> None:
    for output in start(2, "huge.py", of_rank=of_rank).finish():
        assert "all bytes are right" in output


def test_the_timeline_of_every_rank_shows_each_operation(start: Start, tmp_path: Path) -> None:
    environ = {"SLIPSTREAM_TIMELINE": str(tmp_path / "trace-{rank}.json")}
    start(2, "scenario.py", "aborted", environ=environ).finish()
    for rank in range(2):
        events = json.loads((tmp_path / f"trace-{rank}.json").read_text())["traceEvents"]
        bars = [event for event in events if event["ph"] == "X"]
        names = [bar["args"]["collective"] for bar in bars]
        # One world, and after its abort another one that is recorded to the same file.
        assert names == ["barrier", "recv", "barrier", "allreduce"]
        assert [bar["args"]["failed"] for bar in bars] == [False, True, True, False]
        assert all(bar["pid"] == rank and bar["dur"] >= 0 for bar in bars)


def test_without_rank_in_its_name_the_timeline_is_rank_0s(start: Start, tmp_path: Path) -> None:
    environ = {"SLIPSTREAM_TIMELINE": str(tmp_path / "trace.json")}
    start(2, "scenario.py", "waited", environ=environ).finish()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0}
