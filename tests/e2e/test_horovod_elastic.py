"""Elastic jobs by horovodrun's options: hosts come and go, and a failure takes its host out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

TRAINER = Path(__file__).parent / "elastic_trainer.py"
OURS, THEIRS = (
    "localhost:1",
    "127.0.0.1:1",
)  # two names of this host, which the launcher tells apart
LIMIT_SECONDS = 240


def run(folder: Path, *options: str, fail: str = "") -> "subprocess.CompletedProcess[str]":
    """Run the trainer on the hosts in the folder's file `hosts`; return how the job has ended."""
    script = folder / "hosts.sh"
    script.write_text(f"#!/bin/sh\nexec cat {folder}/hosts\n")
    script.chmod(0o755)
    return subprocess.run(
        [
            *(sys.executable, "-m", "slipstream.horovod.run", "-np", "1", "--min-np", "1"),
            *("--max-np", "8", "--host-discovery-script", str(script), *options),
            *(sys.executable, str(TRAINER), str(folder / "log"), *([fail] if fail else [])),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def list_hosts(folder: Path, *lists: tuple[str, ...]) -> None:
    """List the hosts at the start, and after each epoch."""
    for epoch, hosts in enumerate(lists):
        name = "hosts" if epoch == 0 else f"hosts-after-{epoch - 1}"
        (folder / name).write_text("\n".join(hosts) + "\n")


@pytest.mark.slow("Horovod's launchers")
def test_hosts_are_added_and_removed_while_it_trains(tmp_path: Path) -> None:
    list_hosts(tmp_path, (OURS,), (OURS, THEIRS), (THEIRS,))
    ended = run(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert [line["size"] for line in lines(tmp_path)] == [1, 2, 1]
    assert [line["host"] for line in lines(tmp_path)] == ["localhost", "localhost", "127.0.0.1"]
    assert [line["first_rank"] for line in lines(tmp_path)] == [0, 0, 1]
    assert [line["calls"] for line in lines(tmp_path)] == [1, 2, 3]


@pytest.mark.slow("Horovod's launchers")
def test_a_failure_takes_the_whole_host_out(tmp_path: Path) -> None:
    list_hosts(tmp_path, ("localhost:1", "127.0.0.1:2"))
    ended = run(tmp_path, fail="2")
    assert ended.returncode == 0, ended.stderr
    assert [line["size"] for line in lines(tmp_path)] == [3, 1, 1]
    assert [line["calls"] for line in lines(tmp_path)] == [1, 2, 2]


@pytest.mark.slow("Horovod's launchers")
def test_more_changes_than_the_reset_limit_end_the_job(tmp_path: Path) -> None:
    list_hosts(tmp_path, (OURS,), (OURS, THEIRS), (THEIRS,))
    ended = run(tmp_path, "--reset-limit", "1")
    assert ended.returncode == 3
    assert "the members have changed more than 1 times" in ended.stderr
