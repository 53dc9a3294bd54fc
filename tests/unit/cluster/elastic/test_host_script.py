"""What a program that prints hosts may print, and what counts as a failure of it."""

import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipstream.cluster.elastic import host_script
from slipstream.cluster.elastic.host_script import HostScript
from slipstream.cluster.launch import Host
from slipstream.errors import UsageError

A2, B1 = Host(name="a", slots=2, login="me@a"), Host(name="b", slots=1, login="b")

Make = Callable[..., HostScript]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Yield a function that makes the program from the lines of a shell script."""
    scripts: list[HostScript] = []

    def write(lines: str, pause_seconds: float = 1.0) -> HostScript:
        path = tmp_path / "hosts.sh"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)
        if not scripts:
            scripts.append(HostScript(path, dict(os.environ), 1, pause_seconds))
        return scripts[0]

    yield write
    for script in scripts:
        script.close()


def run_once(script: HostScript) -> None:
    """Let the program run once."""
    deadline = time.monotonic() + 60
    while not script.advance():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_line_is_a_host_and_comments_are_none(make: Make) -> None:
    script = make("echo '# hosts'; echo; echo ' me@a:2 # two GPUs'; echo b")
    assert script.hosts == ()
    run_once(script)
    assert (script.hosts, script.problem, script.num_runs) == ((A2, B1), "", 1)
    assert script.due_at > time.monotonic()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("echo b; echo one >&2; echo no network >&2; exit 7", "exit code 7: no network"),
        ("exit 1", "exit code 1: no message"),
        ("kill -9 $$", "killed by SIGKILL: no message"),
        ("echo '# nobody'", "it printed no host"),
        ("echo a:0", "the host is 'a:0'; allowed: [user@]name[:ranks]"),
        ("echo a; echo a:2", "which name 'a' twice"),
    ],
)
def test_a_run_that_fails_keeps_the_last_hosts(make: Make, lines: str, problem: str) -> None:
    script = make("echo me@a:2; echo b", pause_seconds=0.1)
    run_once(script)
    make(lines)
    run_once(script)
    assert problem in script.problem
    assert script.hosts == (A2, B1)
    make("echo b")
    run_once(script)
    assert (script.hosts, script.problem) == ((B1,), "")


def test_a_run_that_takes_too_long_is_killed_with_its_children(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_script, "LIMIT_SECONDS", 0.5)
    script = make(f"sleep 600 & echo $! > {tmp_path}/child; wait")
    run_once(script)
    assert script.problem == "it ran for more than 0.5 s"
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "cmdline")
    deadline = time.monotonic() + 60
    while child.exists() and child.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_much_output_does_not_block_the_program(make: Make) -> None:
    script = make("yes '# a comment' | head -n 50000; echo b")
    run_once(script)
    assert script.hosts == (B1,)


@pytest.mark.parametrize("lines", ["yes a", "yes a-host | head -c 1100000", "yes >&2"])
def test_a_program_that_prints_too_much_has_failed(make: Make, lines: str) -> None:
    script = make(f"{lines}; exit 0")
    began = time.monotonic()
    run_once(script)
    assert script.problem == "it printed more than 1 MiB"
    assert script.hosts == ()
    assert time.monotonic() - began < host_script.LIMIT_SECONDS


def test_a_lack_of_files_is_a_problem_of_the_run(make: Make) -> None:
    script = make("echo b")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        run_once(script)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert script.problem == "it cannot be executed: Too many open files"
    run_once(script)
    assert script.hosts == (B1,)


def test_a_file_that_cannot_be_executed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hosts.sh").write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match=r"no program that may be executed.*chmod \+x"):
        HostScript(tmp_path / "hosts.sh", {}, 1)


@pytest.mark.parametrize(
    ("first_line", "reason"),
    [("echo a:2", "Exec format error"), ("#!/usr/bin/no-such-shell", "No such file or directory")],
)
def test_a_file_without_an_interpreter_is_refused_at_once(
    tmp_path: Path, first_line: str, reason: str
) -> None:
    """It was once tried until --wait had passed."""
    path = tmp_path / "hosts.sh"
    path.write_text(f"{first_line}\necho a:2\n")
    path.chmod(0o755)
    script = HostScript(path, dict(os.environ), 1)
    with pytest.raises(UsageError, match=f"cannot be executed: {reason}; allowed"):
        script.advance()
