"""The head and the host daemons of a run, as processes on this host, without an engine."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from slipstream.cluster.control.certificate import make_certificate
from slipstream.cluster.head.journal import parse_journal
from slipstream.cluster.head.placement import JOURNAL, RetryRules, RunPlacement
from slipstream.cluster.launch.ports import find_free_port_pair

pytestmark = pytest.mark.multiprocess
PROGRAMS = Path(__file__).parent / "programs"
CERTIFICATE, PRIVATE_KEY = make_certificate("test")


class Run:
    """The processes of a run, each with a folder of its own."""

    def __init__(self, folder: Path, placement: RunPlacement) -> None:
        self.folder, self.placement = folder, placement
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        """Start the head (of this name), or the host daemon of a host."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        self.placement.write(folder)
        module = ["slipstream.cluster.head", str(folder)]
        if name != "head":
            module = ["slipstream.cluster.head.daemon", str(folder), name]
        self.processes[name] = subprocess.Popen([sys.executable, "-m", *module])
        return self.processes[name]

    def entries(self, event: str) -> list[dict[str, Any]]:
        """Return the entries of a kind in the journal."""
        path = self.folder / "head" / JOURNAL
        text = path.read_text() if path.exists() else ""
        return [entry for entry in parse_journal(text) if entry["event"] == event]

    @property
    def lines(self) -> list[str]:
        """Return what the ranks have printed."""
        return [entry["text"] for entry in self.entries("line")]

    @property
    def states(self) -> list[str]:
        """Return the states of the job so far."""
        return [entry["state"] for entry in self.entries("state")]


Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a head and the daemons of hosts `a` and `b`."""
    runs: list[Run] = []

    def make(*program: str, names: tuple[str, ...] = ("a", "b"), **fields: Any) -> Run:
        placement = RunPlacement(
            run="test",
            program=program,
            cwd=str(tmp_path),
            hosts=names,
            min_hosts=len(names),
            max_hosts=len(names),
            processes=1,
            python=sys.executable,
            heads=("127.0.0.1",),
            head_port=find_free_port_pair(),
            certificate=CERTIFICATE,
            private_key=PRIVATE_KEY,
            grace_seconds=5.0,
        )
        run = Run(tmp_path, replace(placement, **fields))
        runs.append(run)
        for name in ("head", *names):
            run.start(name)
        return run

    yield make
    for run in runs:
        for process in run.processes.values():
            process.kill()
            process.wait()


def test_the_exit_code_of_the_job_is_that_of_the_head_and_all_daemons_end(start: Start) -> None:
    run = start(
        "sh", "-c", "echo rank $RANK of $WORLD_SIZE; exit $RANK", retry=RetryRules(max_restarts=0)
    )
    assert run.processes["head"].wait(60) == 1
    assert run.processes["a"].wait(60) == 0
    assert run.processes["b"].wait(60) == 0
    assert sorted(run.lines) == ["rank 0 of 2", "rank 1 of 2"]
    assert run.states == ["starting", "running", "failed"]


def test_a_failed_job_starts_again_with_the_number_of_the_start(start: Start) -> None:
    program = 'echo start $TORCHELASTIC_RESTART_COUNT; test "$TORCHELASTIC_RESTART_COUNT" = 1'
    run = start("sh", "-c", program, retry=RetryRules(backoff_seconds=(0.1, 0.1)))
    assert run.processes["head"].wait(60) == 0
    assert run.lines.count("start 1") == 2
    assert run.states == ["starting", "running", "retrying", "starting", "running", "succeeded"]


def test_a_killed_daemon_takes_its_ranks_along_and_a_new_one_is_used(start: Start) -> None:
    once = "test -e once && exit 0; sleep 1000"
    run = start("sh", "-c", f"echo ready; {once}", host_wait_seconds=60.0)
    wait_until(lambda: run.lines.count("ready") == 2)
    (run.folder / "once").touch()
    run.processes["b"].kill()
    run.processes["b"].wait()
    wait_until(lambda: "retrying" in run.states)
    run.start("b")
    assert run.processes["head"].wait(60) == 0
    assert run.processes["b"].wait(60) == 0


def test_a_job_shrinks_to_its_least_number_of_hosts(start: Start) -> None:
    program = 'echo ready $WORLD_SIZE; test "$WORLD_SIZE" = 1 || sleep 1000'
    run = start("sh", "-c", program, min_hosts=1, host_wait_seconds=5.0)
    wait_until(lambda: run.lines.count("ready 2") == 2)
    run.processes["b"].kill()
    assert run.processes["head"].wait(60) == 0
    assert run.lines[-1] == "ready 1"


def test_too_few_hosts_fail_the_job_with_their_names(start: Start) -> None:
    run = start("true", names=("a",), min_hosts=2, max_hosts=2, lost_seconds=1.0)
    assert run.processes["head"].wait(60) == 1
    text = run.entries("state")[-1]["text"]
    assert "2 hosts are needed, and 1 came within 1 s: a" in text


def test_ranks_that_say_nothing_for_too_long_are_started_again(start: Start) -> None:
    program = 'echo hi; test "$TORCHELASTIC_RESTART_COUNT" = 1 || sleep 1000'
    run = start(
        "sh", "-c", program, retry=RetryRules(silence_seconds=2.0, backoff_seconds=(0.1, 0.1))
    )
    assert run.processes["head"].wait(60) == 0
    (retrying,) = [entry for entry in run.entries("state") if entry["state"] == "retrying"]
    assert "no rank has printed a line for 2 s" in retrying["text"]


def test_the_deadline_ends_everything(start: Start) -> None:
    import time

    run = start("sleep", "1000", deadline_at=time.time() + 3)
    assert run.processes["head"].wait(60) == 124
    assert run.processes["a"].wait(60) == 0
    assert "the deadline is over" in run.entries("state")[-1]["text"]


def test_sigterm_ends_the_job(start: Start) -> None:
    run = start("sh", "-c", "echo ready; sleep 1000")
    wait_until(lambda: run.lines.count("ready") == 2)
    run.processes["head"].terminate()
    assert run.processes["head"].wait(60) == 128 + signal.SIGTERM
    assert run.states[-1] == "cancelled"
    assert run.processes["a"].wait(60) == 0


def test_members_of_an_elastic_job_are_replaced_alone(start: Start) -> None:
    run = start(str(PROGRAMS / "elastic_steps.py"), "40", retry=RetryRules(scope="worker"))
    wait_until(lambda: any(line.startswith("step 5 ") for line in run.lines))
    (first,) = [entry for entry in run.entries("started") if entry["slot"] == 1]
    os.kill(first["pid"], signal.SIGKILL)
    assert run.processes["head"].wait(100) == 0
    assert sum(line.startswith("step 39 of 2") for line in run.lines) == 2
    assert len([entry for entry in run.entries("started") if entry["slot"] == 0]) == 1
    assert len([entry for entry in run.entries("started") if entry["slot"] == 1]) == 2


def test_a_second_head_does_not_start(start: Start) -> None:
    run = start("sh", "-c", "echo ready; sleep 1000")
    wait_until(lambda: run.lines.count("ready") == 2)
    argv = [sys.executable, "-m", "slipstream.cluster.head", str(run.folder / "head")]
    assert subprocess.run(argv, check=False).returncode == 75
    assert run.states == ["starting", "running"]


def said_by_head(run: Run, context: ssl.SSLContext | None) -> bytes:
    """Return what the head answers to a host that nobody has invited."""
    hello = json.dumps({"host": "evil", "slots": 1}).encode() + b"\n"
    connection = socket.create_connection(("127.0.0.1", run.placement.head_port))
    try:
        if context is not None:
            connection = context.wrap_socket(connection)
        connection.sendall(hello)
        return connection.recv(100)
    except OSError:
        return b""
    finally:
        connection.close()


def test_nobody_without_the_certificate_is_heard(start: Start) -> None:
    run = start("sh", "-c", "echo ready; sleep 1000")
    wait_until(lambda: run.lines.count("ready") == 2)
    context = ssl.create_default_context(cadata=CERTIFICATE)
    context.check_hostname = False
    assert b"{" not in said_by_head(run, None)
    assert said_by_head(run, context) == b""
    other, key = make_certificate("other")
    (run.folder / "pem").write_text(other + key)
    context.load_cert_chain(run.folder / "pem")
    assert said_by_head(run, context) == b""
    assert sorted(entry["name"] for entry in run.entries("host")) == ["a", "b"]


def test_an_agent_that_cannot_start_is_told_with_the_reason(start: Start) -> None:
    rules = RetryRules(max_restarts=1, backoff_seconds=(0.1, 0.1))
    run = start("true", retry=rules, gpu_memory_gib=1e6)
    assert run.processes["head"].wait(60) == 1
    reason = run.entries("state")[-1]["text"]
    assert "its host daemon could start no agent: resources.gpu_memory needs a GPU" in reason
    assert run.states.count("running") == 2
    assert run.processes["a"].wait(60) == 0
