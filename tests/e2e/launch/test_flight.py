"""Flight records under `slipstream run`, and `slipstream explain` on them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.multiprocess

Run = Callable[..., Any]  # conftest.Launch is what it returns
FAULTY = str(Path(__file__).parents[2] / "multiprocess" / "ranks" / "faulty.py")
SLIPSTREAM = Path(sys.executable).with_name("slipstream")
EXPLAIN = "slipstream: explain it: slipstream explain "


def folder_of(launch: Any) -> Path:
    """Return the folder that a failed launch names."""
    (line,) = (line for line in launch.errors.splitlines() if line.startswith(EXPLAIN))
    return Path(line.removeprefix(EXPLAIN))


def explained(folder: Path, *options: str) -> str:
    """Return what `slipstream explain` prints."""
    return subprocess.run(
        [SLIPSTREAM, "explain", str(folder), *options],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def told_of(launch: Any) -> dict[str, Any]:
    return json.loads(explained(folder_of(launch), "--json"))


def test_a_killed_rank_is_the_headline(run: Run) -> None:
    launch = run("-n", "3", FAULTY, "kill")
    assert launch.finish() == 128 + signal.SIGKILL
    told = told_of(launch)
    assert told["ranks_at_fault"] == [1]
    assert told["headline"].startswith("Rank 1 (host ")
    assert "was killed by signal 9 (SIGKILL)" in told["headline"]
    assert "ranks 0, 2 were in allreduce 'gradient 5'" in told["headline"]
    assert told["rows"][1]["end"] == "signal 9 (SIGKILL)"
    assert {row["place"].split(":")[0] for row in told["rows"]} == {"", "ranks/faulty.py"}


def test_the_last_job_is_explained_by_default(run: Run) -> None:
    launch = run("-n", "2", FAULTY, "raise_error")
    assert launch.finish() == 1
    folder = folder_of(launch)
    environ = {**os.environ, "SLIPSTREAM_FLIGHT_DIR": str(folder.parent)}
    said = subprocess.run(
        [SLIPSTREAM, "explain"], env=environ, check=True, capture_output=True, text=True
    )
    assert said.stdout.startswith("Rank 1 (host ")
    assert f"{folder.name} is the newest of 1 job" in said.stderr


def test_an_exception_is_shown_on_the_terminal(run: Run) -> None:
    launch = run("-n", "2", FAULTY, "raise_error")
    assert launch.finish() == 1
    text = explained(folder_of(launch))
    assert text.startswith("Rank 1 (host ")
    assert "ValueError: bad sample 17, at ranks/faulty.py:" in text
    assert 'raise ValueError("bad sample 17")' in text
    for title in ("How the others learned of it", "Differences", "What to do"):
        assert f"\n{title}\n" in text


def test_a_stopped_rank_is_known_by_its_state(run: Run) -> None:
    launch = run("-n", "3", FAULTY, "stop", environ={"SLIPSTREAM_PEER_TIMEOUT": "1.5"})
    assert launch.finish() != 0
    told = told_of(launch)
    assert told["kind"] == "stopped"
    assert "was stopped and went silent" in told["headline"]
    assert told["rows"][1]["end"] == "ended by the launcher, was stopped"


def test_a_crash_is_explained_from_the_stacks_of_the_interpreter(run: Run) -> None:
    launch = run("-n", "2", FAULTY, "crash")
    assert launch.finish() == 128 + signal.SIGSEGV
    told = told_of(launch)
    assert told["kind"] == "crashed"
    assert "SIGSEGV in native code, at ranks/faulty.py:" in told["headline"]


def test_ctrl_c_shows_who_was_awaited(run: Run, wait_until: Callable[..., None]) -> None:
    environ = {"SLIPSTREAM_STALL_SECONDS": "1"}
    launch = run("-n", "3", FAULTY, "get_stuck", environ=environ)
    launch.wait_for("has waited for 1")
    launch.process.send_signal(signal.SIGINT)
    assert launch.finish() == 128 + signal.SIGINT
    told = told_of(launch)
    assert told["kind"] == "interrupted"
    assert told["ranks_at_fault"] == [1]
    assert told["headline"].startswith("SIGINT ended the job")
    assert "Rank 1 was busy or stuck in its own code, at ranks/faulty.py:" in told["headline"]


def test_a_job_that_ends_well_leaves_nothing(run: Run, tmp_path: Path) -> None:
    launch = run("-n", "2", "meet.py")
    assert launch.finish() == 0, launch.errors
    assert "explain" not in launch.errors
    assert not (tmp_path / "flight").exists()


def test_programs_without_an_engine_leave_nothing(run: Run, tmp_path: Path) -> None:
    launch = run("-n", "2", "sh", "-c", "exit 3")
    assert launch.finish() == 3
    assert "explain" not in launch.errors
    assert not (tmp_path / "flight").exists()


def test_a_folder_that_cannot_be_made_is_said_and_the_job_runs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environ = {"SLIPSTREAM_FLIGHT_DIR": str(tmp_path / "file" / "below")}
    launch = run("-n", "2", "meet.py", environ=environ)
    assert launch.finish() == 0, launch.errors
    assert "no flight records are written" in launch.errors


def test_two_jobs_of_one_second_have_two_folders(run: Run, tmp_path: Path) -> None:
    launches = [run("-n", "2", FAULTY, "raise_error") for _ in range(2)]
    assert [launch.finish() for launch in launches] == [1, 1]
    assert len({folder_of(launch) for launch in launches}) == 2


def test_the_default_folder_lies_in_the_working_directory(run: Run, tmp_path: Path) -> None:
    launch = run(
        "-n", "2", FAULTY, "raise_error", cwd=tmp_path, environ={"SLIPSTREAM_FLIGHT_DIR": ""}
    )
    assert launch.finish() == 1
    folder = folder_of(launch)
    assert folder.parts[0] == "slipstream-flight"
    assert folder.name.startswith("faulty-")
    assert (tmp_path / folder / "launcher.json").exists()


def test_without_a_launcher_the_user_names_the_folder(tmp_path: Path) -> None:
    program = "from slipstream import comm; comm.init(); comm.write_flight_record('records')"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
    text = explained(tmp_path / "records")
    assert text.startswith("No rank had a fault when these records were written.")
