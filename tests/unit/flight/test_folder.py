"""Folders of records: what is wrong with them is said."""

import os
from pathlib import Path

import pytest

from slipstream.errors import UsageError
from slipstream.flight.account import explain
from slipstream.flight.codec import as_json
from slipstream.flight.files import crash_path, job_folders, launcher_path, record_path
from slipstream.flight.folder import read_folder
from slipstream.flight.launcher import LauncherRecord, RankEnd


def write_launcher(folder: Path, *ends: RankEnd, signal: str = "") -> None:
    first = next((end.rank for end in ends if end.status), None)
    record = LauncherRecord(
        command=("train.py",), started=0.0, seconds=2.0, ranks=ends, first=first, signal=signal
    )
    launcher_path(folder).write_text(as_json(record))


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        explain(tmp_path / "none")
    with pytest.raises(UsageError, match=r"has no flight record.*SLIPSTREAM_FLIGHT_DIR"):
        explain(tmp_path)


def test_files_that_are_no_records_are_named_and_the_others_are_used(tmp_path: Path) -> None:
    write_launcher(tmp_path, RankEnd(rank=0, host="a", status=1, seconds=1.0))
    record_path(tmp_path, 0).write_text("{")
    record_path(tmp_path, 1).write_text('{"rank": 1}')
    problems = read_folder(tmp_path).problems
    assert len(problems) == 2
    assert "rank-0000.json is not a slipstream flight record" in problems[0]
    assert explain(tmp_path).problems == problems


def test_a_launcher_alone_tells_how_the_ranks_ended(tmp_path: Path) -> None:
    write_launcher(
        tmp_path,
        RankEnd(rank=0, host="a", pid=7, status=1, seconds=1.0, last_lines=("No module x",)),
        RankEnd(rank=1, host="a", pid=8, status=-15, seconds=1.1, by_launcher=True),
    )
    told = explain(tmp_path)
    assert told.headline == "Rank 0 (host a, process 7) ended first, exit code 1."
    assert told.details == ("    No module x",)
    assert [row.end for row in told.rows] == ["exit code 1", "ended by the launcher"]


def test_kills_for_lack_of_memory_are_the_likely_reason_of_sigkill(tmp_path: Path) -> None:
    write_launcher(
        tmp_path,
        RankEnd(rank=0, host="a", status=-15, seconds=1.1, by_launcher=True),
        RankEnd(rank=1, host="a", pid=8, status=-9, seconds=1.0, oom_kills=1),
    )
    told = explain(tmp_path)
    assert told.kind == "out of memory"
    assert told.headline == (
        "Rank 1 (host a, process 8) was killed by signal 9 (SIGKILL) 1.0 s after the start, most"
        " likely by the kernel's out-of-memory killer."
    )
    assert "has killed 1 process for lack of memory" in told.advice[0]


def test_a_kernel_that_killed_nothing_speaks_against_it(tmp_path: Path) -> None:
    write_launcher(tmp_path, RankEnd(rank=0, host="a", pid=8, status=-9, seconds=1, oom_kills=0))
    told = explain(tmp_path)
    assert told.kind == "killed"
    assert told.advice[0].startswith("The kernel has killed no process of this host")


def test_the_newest_of_several_jobs_is_last(tmp_path: Path) -> None:
    for number, name in enumerate(("older", "newer", "running")):
        folder = tmp_path / name
        folder.mkdir()
        write_launcher(folder, RankEnd(rank=0, host=name, status=1, seconds=1.0))
        os.utime(folder, (number, number))
    launcher_path(tmp_path / "running").unlink()
    crash_path(tmp_path / "running", 0).touch()  # as while a job runs
    assert job_folders(tmp_path) == [tmp_path / "older", tmp_path / "newer"]
    assert job_folders(tmp_path / "older") == []
    assert job_folders(tmp_path / "none") == []
