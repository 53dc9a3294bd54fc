"""Accounts of faults, from the records of real ranks that no launcher watches."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstream.flight.account import Account, explain
from slipstream.flight.files import record_path
from slipstream.flight.folder import read_folder

pytestmark = pytest.mark.multiprocess

Start = Callable[..., Any]

TCP = {rank: {"SLIPSTREAM_HOST_ID": f"host {rank}"} for rank in range(3)}
LIMIT_SECONDS = 120.0


@pytest.fixture
def account(start: Start, tmp_path: Path) -> Callable[..., Account]:
    """Run three ranks until the trouble has ended them, and explain their records.

    Ranks that `but` names do not end by themselves.
    """

    def run(trouble: str, but: tuple[int, ...] = (), **environ: str) -> Account:
        folder = tmp_path / "flight"
        chosen = {"SLIPSTREAM_FLIGHT_DIR": str(folder), **environ}
        job = start(3, "faulty.py", trouble, environ=chosen, of_rank=TCP)
        for number, rank in enumerate(job.ranks):
            if number not in but:
                rank.process.wait(LIMIT_SECONDS)
        for number in but:
            end(job.ranks[number].process)
        return explain(folder)

    return run


def end(process: "subprocess.Popen[str]") -> None:
    """End a rank as launchers do."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:  # it is stopped
        process.kill()
        process.wait()


def place_of(account: Account, rank: int) -> str:
    return account.rows[rank].place


def test_an_exception_is_told_from_its_consequences(account: Callable[..., Account]) -> None:
    told = account("raise_error")
    assert told.headline.startswith("Rank 1 (host ")
    assert "failed first: ValueError: bad sample 17, at ranks/faulty.py:" in told.headline
    assert "(raise_error); ranks 0, 2 were in allreduce 'gradient 5' (operation 5" in told.headline
    assert told.kind == "exception"
    assert told.ranks_at_fault == (1,)
    assert told.rows[0].end == "PeerError"
    assert told.rows[1].finished == "allreduce 'gradient 4' #4"
    assert told.rows[2].waits_for == (1,)
    assert any("rank 1 was 1 operation behind" in line for line in told.differences)
    assert any("noticed: rank 1 (" in line for line in told.notices)


def test_one_exception_on_all_ranks_is_one_sentence(account: Callable[..., Account]) -> None:
    told = account("raise_everywhere")
    assert told.headline.startswith("Ranks 0-2 raised ValueError: bad sample 17, at ranks/")
    assert told.ranks_at_fault == (0, 1, 2)


def test_a_lack_of_memory_has_advice_of_its_own(account: Callable[..., Account]) -> None:
    told = account("run_out_of_memory")
    assert told.kind == "out of memory"
    assert "failed first: MemoryError, at ranks/faulty.py:" in told.headline
    assert any("smaller batch" in line and "GiB in all" in line for line in told.advice)


def test_errors_that_say_what_to_do_have_no_advice_about_the_script(
    account: Callable[..., Account],
) -> None:
    told = account("fill_disk")
    assert "No space left on device" in told.headline
    (advice,) = told.advice
    assert advice.startswith("The disk is full, or its quota is used up: ")
    (advice,) = account("misuse").advice
    assert advice.startswith("The error is Slipstream's own: its message names what is wrong")


def test_a_killed_rank_is_missing(account: Callable[..., Account]) -> None:
    told = account("kill")
    assert told.kind == "lost"
    assert told.ranks_at_fault == (1,)
    assert "ended without a flight record, so it was probably killed" in told.headline
    assert any("rank 1 has written no record" in line for line in told.differences)


def test_a_crash_shows_the_line_that_called_native_code(account: Callable[..., Account]) -> None:
    told = account("crash")
    assert told.kind == "crashed"
    assert "Segmentation fault in native code, at ranks/faulty.py:" in told.headline
    assert "(crash); ranks 0, 2 were in allreduce 'gradient 5'" in told.headline
    assert any("Current thread" in line for line in told.details)


@pytest.mark.slow("records of a rank that stops")
def test_a_stopped_rank_was_silent(account: Callable[..., Account]) -> None:
    told = account("stop", but=(1,), SLIPSTREAM_PEER_TIMEOUT="1.5")
    assert told.kind == "lost"
    assert told.ranks_at_fault == (1,)
    assert "went silent: its process was stopped, or its host or network is down" in told.headline


@pytest.mark.slow("records of a rank that stops")
def test_a_rank_that_went_on_after_it_was_stopped_says_so(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "flight"
    environ = {"SLIPSTREAM_FLIGHT_DIR": str(folder), "SLIPSTREAM_PEER_TIMEOUT": "1.5"}
    job = start(3, "faulty.py", "stop", environ=environ, of_rank=TCP)
    for number in (0, 2):
        job.ranks[number].process.wait(LIMIT_SECONDS)
    job.ranks[1].signal(signal.SIGCONT)
    job.ranks[1].process.wait(LIMIT_SECONDS)
    told = explain(folder)
    assert told.kind == "stopped"
    assert "did not run for a while and went silent" in told.headline
    assert any("this process did not run for" in line for line in told.details)


@pytest.mark.slow("records of a rank that stops")
def test_a_stuck_rank_is_shown_with_its_line(account: Callable[..., Account]) -> None:
    told = account("get_stuck", but=(1,), SLIPSTREAM_TIMEOUT="2", SLIPSTREAM_STALL_SECONDS="0.5")
    assert told.kind == "stuck"
    assert told.headline.startswith("Rank 1 was busy or stuck in its own code, at ranks/faulty.py:")
    assert "(get_stuck), while ranks 0, 2 waited for 2 s in allreduce 'gradient 5'" in told.headline
    assert told.details[0].endswith("(get_stuck): time.sleep(LONG_SECONDS)")


def test_a_stall_is_recorded_on_both_sides_while_the_job_runs(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "flight"
    environ = {"SLIPSTREAM_FLIGHT_DIR": str(folder), "SLIPSTREAM_STALL_SECONDS": "0.5"}
    job = start(3, "faulty.py", "get_stuck", environ=environ, of_rank=TCP)
    for rank in job.ranks:
        wait_for(lambda rank=rank: record_path(folder, job.ranks.index(rank)).exists())
    kinds = [read_folder(folder).records[rank].occasions[0].kind for rank in range(3)]
    assert kinds == ["stall", "awaited", "stall"]
    assert explain(folder).kind == "stuck"


def test_an_exception_in_a_thread_is_found_although_the_rank_lives(
    start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "flight"
    job = start(3, "faulty.py", "raise_in_thread", environ={"SLIPSTREAM_FLIGHT_DIR": str(folder)})
    wait_for(record_path(folder, 1).exists)
    for rank in job.ranks:
        end(rank.process)
    told = explain(folder)
    assert told.kind == "exception"
    assert "ValueError: bad sample 17" in told.headline


def test_different_arguments_are_shown_by_rank(account: Callable[..., Account]) -> None:
    told = account("differ")
    assert told.kind == "mismatch"
    assert told.ranks_at_fault == (1,)
    assert (
        "as operation 5 of group 'world', rank 1 allreduce sum float32 x 999; ranks 0, 2 allreduce"
        " sum float32 x 1000." in told.headline
    )
    assert any("rank 1 was at ranks/faulty.py:" in line for line in told.details)
    assert "(differ)" in place_of(told, 1)


def test_an_abort_has_its_reason_and_its_place(account: Callable[..., Account]) -> None:
    told = account("abort")
    assert told.headline == "Rank 1 aborted group 'world': the loss is not finite."
    assert any("(abort)" in line for line in told.details)


def test_a_rank_that_ends_early_has_left(account: Callable[..., Account]) -> None:
    told = account("leave")
    assert told.kind == "left"
    assert told.ranks_at_fault == (1,)
    assert "ended its script, without an exception, while others still needed it" in told.headline


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_person_who_ends_the_job_is_no_fault(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "flight"
    job = start(3, "faulty.py", "nothing", environ={"SLIPSTREAM_FLIGHT_DIR": str(folder)})
    for rank in job.ranks:
        rank.wait_for("step")
    for rank in job.ranks:
        rank.signal(number)
    codes = [rank.process.wait(LIMIT_SECONDS) for rank in job.ranks]
    told = explain(folder)
    assert codes == [-number] * 3
    assert told.kind == "interrupted"
    assert told.headline.startswith(f"{number.name} ended the job")


def test_clocks_that_differ_are_named_and_not_believed(
    account: Callable[..., Account], tmp_path: Path
) -> None:
    account("abort")
    folder = tmp_path / "flight"
    path = record_path(folder, 2)
    content = json.loads(path.read_text())
    content["host"] = "another"
    for event in content["engines"][0]["events"]:
        event["wall"] -= 300.0  # as if its clock were five minutes behind
    path.write_text(json.dumps(content))
    told = explain(folder)
    (seconds,) = (
        float(found[1])
        for line in told.differences
        if (found := re.match(r"the clock of host another is at least ([\d.]+) s behind", line))
    )
    assert 200 < seconds < 301
    assert "rank 1 noticed: rank 1 aborted group 'world'" in told.notices[0]
    assert any("rank 2 was told by rank" in line for line in told.notices)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
