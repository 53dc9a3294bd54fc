"""The launcher and agents that a test makes up: shell scripts in place of ssh say their lines."""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipstream.cluster.launch import Job, launch, parse_hosts
from slipstream.cluster.launch.connection import SSH_OPTIONS
from slipstream.cluster.launch.launcher import Failure
from slipstream.cluster.launch.link import AgentLink, describe_status
from slipstream.errors import InternalError

HELLO = '["Hello", {"protocol": 3, "num_cores": 64, "free_port": 20000}]'
SAYS_HELLO = f'echo \'{HELLO}\'; read start; echo "$start" > "$LOGS/$login";'


class Recorder:
    """Keeps what it is to show."""

    has_no_reader = False

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.notes: list[str] = []
        self.failure: Failure | None = None

    def line(self, rank: int, text: str, *, is_error: bool) -> None:
        self.seen.append(("line", rank, text, is_error))

    def progress(self, rank: int, text: str) -> None:
        self.seen.append(("progress", rank, text))

    def step(self, rank: int, number: int) -> None:
        self.seen.append(("step", rank, number))

    def started(self, rank: int, host: str, pid: int) -> None:
        self.seen.append(("started", rank, host, pid))

    def exited(self, rank: int, host: str, status: int) -> None:
        self.seen.append(("exited", rank, host, status))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finished(self, failure: Failure | None) -> None:
        self.failure = failure


def says(kind: str, **fields: object) -> str:
    """Return the command of an agent that sends a message."""
    return f"printf '%s\\n' '{json.dumps([kind, fields])}';"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the agents, to which they write their orders."""
    return tmp_path


def job(folder: Path, script: str, hosts: str = "a:2,me@b", **environ: str) -> Job:
    """Return a job whose agents are scripts, with $login as the host's name."""
    ssh = folder / "ssh"
    ssh.write_text(
        '#!/bin/sh\necho "$@" >> "$LOGS/argv"\n'
        'while [ "$1" != -- ]; do shift; done; login=$2\n' + script
    )
    ssh.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return Job(
        hosts=parse_hosts(hosts),
        program=("true",),
        cwd="/there",
        python="/there/py thon",
        environ={"PATH": path, "LOGS": str(folder), **environ},
    )


def told(folder: Path, login: str) -> dict[str, Any]:
    """Return the orders that an agent received at the start."""
    name, fields = json.loads((folder / login).read_text())
    assert name == "Start"
    return fields


def test_ssh_is_called_without_a_terminal_and_with_the_options_of_the_job(folder: Path) -> None:
    chosen = replace(job(folder, "exit 255", "a:2"), ssh_options=("Port=2222",))
    assert launch(chosen, Recorder()) == 1
    options = "BatchMode=yes ConnectTimeout=15 ServerAliveInterval=15 ServerAliveCountMax=4"
    assert " ".join(SSH_OPTIONS) == f"{options} LogLevel=ERROR"
    given = " ".join(f"-o {each}" for each in ("Port=2222", *SSH_OPTIONS))
    command = "cd / && exec '/there/py thon' -m slipstream.cluster.launch.agent"
    assert (folder / "argv").read_text() == f"-T {given} -- a {command}\n"


def test_every_agent_is_told_its_ranks_and_what_it_gets_of_our_environment(folder: Path) -> None:
    script = (
        SAYS_HELLO
        + says("Started", local_rank=0, pid=7)
        + says("Exited", local_rank=0, status=0)
        + '[ "$login" = a ] || exit 0;'
        + says("Exited", local_rank=1, status=0)
    )
    recorder = Recorder()
    chosen = replace(
        job(folder, script, OMP_PLACES="cores"), chosen={"MINE": "1"}, grace_seconds=1.5
    )
    assert launch(chosen, recorder) == 0
    first, second = told(folder, "a"), told(folder, "me@b")
    assert (first["argv"], first["cwd"], first["terminal"]) == (["true"], "/there", [])
    assert first["grace_seconds"] == 1.5
    assert (first["environ"]["OMP_PLACES"], first["environ"]["MINE"]) == ("cores", "1")
    assert "PATH" not in first["environ"]
    assert first["environ"]["SLIPSTREAM_JOB_KEY"] == second["environ"]["SLIPSTREAM_JOB_KEY"]
    assert [each["RANK"] for each in first["ranks"] + second["ranks"]] == ["0", "1", "2"]
    assert second["ranks"][0]["MASTER_PORT"] == "20000"
    threads = (first["environ"]["OMP_NUM_THREADS"], second["environ"]["OMP_NUM_THREADS"])
    assert threads == ("32", "64")
    (note,) = recorder.notes
    assert note.startswith(
        "each rank on a gets OMP_NUM_THREADS=32, because the host has 64 cores for"
    )
    assert recorder.failure is None
    assert {each for each in recorder.seen if each[0] == "started"} == {
        ("started", 0, "a", 7),
        ("started", 2, "b", 7),
    }


def test_the_first_rank_that_fails_ends_the_others_and_is_reported(folder: Path) -> None:
    script = (
        SAYS_HELLO
        + 'if [ "$login" = a ]; then read end; echo "$end" > "$LOGS/end"; exit; fi;'
        + says("Started", local_rank=0, pid=7)
        + says("Output", local_rank=0, is_error=True, data="\xe4\nwhy")
        + says("Output", local_rank=0, is_error=True, data="")
        + says("Exited", local_rank=0, status=3)
    )
    recorder = Recorder()
    assert launch(job(folder, script, OMP_NUM_THREADS="1"), recorder) == 3
    assert json.loads((folder / "end").read_text()) == ["End", {}]
    failure = recorder.failure
    assert failure is not None
    assert 0 < failure.seconds < 100
    assert replace(failure, seconds=0.0) == Failure(
        host="b",
        rank=2,
        reason="exit code 3",
        seconds=0.0,
        exit_code=3,
        after_signal="",
        last_lines=("\ufffd", "why"),
    )
    assert recorder.notes == []
    shown = [each for each in recorder.seen if each[0] != "started"]
    assert shown == [("line", 2, "\ufffd", True), ("line", 2, "why", True), ("exited", 2, "b", 3)]


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [(-9, 137, "killed by SIGKILL"), (1, 1, "exit code 1"), (255, 255, "exit code 255")],
)
def test_the_exit_code_is_that_of_the_rank_or_128_and_its_signal(
    folder: Path, status: int, code: int, reason: str
) -> None:
    recorder = Recorder()
    script = SAYS_HELLO + says("Exited", local_rank=0, status=status)
    assert launch(job(folder, script, "a"), recorder) == code
    assert recorder.failure is not None
    assert (recorder.failure.reason, recorder.failure.exit_code) == (reason, code)
    assert (recorder.failure.host, recorder.failure.rank) == ("a", 0)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            'for i in 1 2 3 4 5 6; do echo "  no $i" >&2; echo >&2; done; exit 255',
            "ssh failed; `ssh me@b true` must work without a password: no 2; no 3; no 4; no 5;"
            " no 6",
        ),
        (
            "exit 127",
            "no agent could be started (exit code 127); install Slipstream for /there/py thon on"
            " that host, or name another Python with --python: no message",
        ),
        (
            f"echo Welcome; echo '{HELLO.replace(': 3', ': 4')}'; read end; exit",
            "its Slipstream uses launch protocol 4, and this host's uses 3; install the same"
            " version on both",
        ),
        (
            SAYS_HELLO + says("Refused", reason="no such directory"),
            "no such directory",
        ),
        (
            SAYS_HELLO + says("Started", local_rank=0, pid=7) + "echo lost >&2; exit 4",
            "the connection to its agent was lost (exit code 4): lost",
        ),
        (
            SAYS_HELLO + says("Started", local_rank=0, pid=7) + "kill -9 $$",
            "the connection to its agent was lost (killed by SIGKILL): no message",
        ),
        (
            SAYS_HELLO + "echo ValueError: no such text >&2; exit 1",
            "the connection to its agent was lost (exit code 1): ValueError: no such text",
        ),
        (
            SAYS_HELLO + "exit 0",
            "the connection to its agent was lost (exit code 0): no message",
        ),
    ],
)
def test_a_host_that_fails_says_why_and_the_code_is_1(
    folder: Path, script: str, reason: str
) -> None:
    recorder = Recorder()
    assert launch(job(folder, script, "me@b"), recorder) == 1
    failure = recorder.failure
    assert failure is not None
    assert failure.reason == reason
    assert (failure.host, failure.rank, failure.exit_code) == ("b", None, 1)
    assert failure.last_lines == ()


def test_an_agent_that_ends_before_all_of_its_ranks_did_is_a_failure(folder: Path) -> None:
    ended = says("Started", local_rank=0, pid=7) + says("Exited", local_rank=0, status=0)
    recorder = Recorder()
    assert launch(job(folder, SAYS_HELLO + ended + "echo lost >&2", "a:2"), recorder) == 1
    failure = recorder.failure
    assert failure is not None
    assert (failure.host, failure.rank) == ("a", None)
    assert failure.reason == "the connection to its agent was lost (exit code 0): lost"


def test_a_second_signal_does_not_hide_that_no_rank_has_started(folder: Path) -> None:
    script = SAYS_HELLO + 'kill -INT "$PPID"; read signal; kill -INT "$PPID"; read kill; exit 1'
    recorder = Recorder()
    assert launch(job(folder, script, "a"), recorder) == 1
    assert recorder.failure is not None
    assert recorder.failure.after_signal == "SIGINT"


def test_a_host_that_says_nothing_is_given_up(folder: Path) -> None:
    recorder = Recorder()
    script = f"[ \"$login\" = a ] && echo '{HELLO}'; read end"
    given = job(folder, script, SLIPSTREAM_CONNECT_TIMEOUT="2")
    assert launch(given, recorder) == 1
    assert recorder.failure is not None
    assert (recorder.failure.host, recorder.failure.reason) == (
        "b",
        "its agent did not answer within 2 s",
    )
    assert 2 <= recorder.failure.seconds < 30


@pytest.mark.parametrize(
    "message", [says("End"), says("Signal", number=2), "echo no message;", "echo '[1]';"]
)
def test_an_agent_that_says_what_none_says_is_a_bug(folder: Path, message: str) -> None:
    with pytest.raises(InternalError, match="the agent of a sent"):
        launch(job(folder, SAYS_HELLO + message + "read end", "a"), Recorder())


def test_signals_go_to_the_ranks_and_the_second_one_kills_them(folder: Path) -> None:
    script = (
        SAYS_HELLO
        + says("Started", local_rank=0, pid=7)
        + 'n=0; while read line; do n=$((n + 1)); echo "$line" >> "$LOGS/got";'
        + ' if [ "$n" = 2 ]; then kill -INT "$PPID"; elif [ "$n" = 1 ]; then kill -TERM "$PPID";'
        + ' elif [ "$n" = 3 ]; then '
        + says("Exited", local_rank=0, status=-15)
        + " exit; fi; done"
    )
    script = script.replace("n=0;", 'kill -USR1 "$PPID"; n=0;')
    recorder = Recorder()
    assert launch(job(folder, script, "a"), recorder) == 143
    got = [json.loads(line) for line in (folder / "got").read_text().splitlines()]
    assert got == [
        ["Signal", {"number": signal.SIGUSR1}],
        ["Signal", {"number": signal.SIGTERM}],
        ["Kill", {}],
    ]
    assert recorder.notes[-2:] == [
        "SIGTERM goes to every rank; another one kills them",
        "SIGINT came again: the ranks are killed",
    ]
    assert recorder.failure is not None
    assert recorder.failure.after_signal == "SIGTERM"


def test_a_signal_before_any_rank_has_started_ends_the_launch(folder: Path) -> None:
    recorder = Recorder()
    script = 'kill -INT "$PPID"; while read end; do :; done'
    assert launch(job(folder, script, "a"), recorder) == 130
    assert recorder.failure is None
    assert recorder.notes == ["SIGINT goes to every rank; another one kills them"]


@pytest.mark.parametrize(
    ("status", "text"),
    [(0, "exit code 0"), (1, "exit code 1"), (-1, "killed by SIGHUP"), (-15, "killed by SIGTERM")],
)
def test_a_status_is_said_in_words(status: int, text: str) -> None:
    assert describe_status(status) == text


def test_links_count_ranks_on_from_host_to_host(folder: Path) -> None:
    given = job(folder, "exit 3", "a:2,b:3,c")
    links = [AgentLink(given, index) for index in range(3)]
    assert [link.first_rank for link in links] == [0, 2, 5]
    assert [(link.has_started, link.is_open, link.hello) for link in links] == 3 * [
        (False, True, None)
    ]
    for link in links:
        assert link.close().startswith("no agent could be started (exit code 3)")
        assert not link.is_open
        with pytest.raises(ValueError, match="closed file"):
            _ = link.errors


def test_this_hosts_agent_runs_what_it_is_told_with_the_python_of_the_launcher(
    folder: Path,
) -> None:
    recorder = Recorder()
    code = "import os, sys; print(os.environ['RANK']); print(sys.executable, file=sys.stderr)"
    program = folder / "program.py"
    program.write_text(code)
    given = Job(
        hosts=parse_hosts("localhost:2"),
        program=(str(program),),
        cwd=str(folder),
        python="/nowhere",
        environ=dict(os.environ),
    )
    assert launch(given, recorder) == 0
    lines = {each for each in recorder.seen if each[0] == "line"}
    assert lines == {
        *(("line", rank, str(rank), False) for rank in (0, 1)),
        *(("line", rank, sys.executable, True) for rank in (0, 1)),
    }
    assert [each[1:] for each in recorder.seen if each[0] == "exited" and each[1] == 1] == [
        (1, "localhost", 0)
    ]
