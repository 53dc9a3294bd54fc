"""Signals as bytes, and processes that are waited for and not reaped."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slipstream.cluster.launch.signals import (
    END_SIGNALS,
    PASSED_SIGNALS,
    expect_children,
    signals_as_bytes,
)


def test_the_signals_that_end_and_those_that_are_passed_on() -> None:
    assert END_SIGNALS == (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    assert PASSED_SIGNALS == (signal.SIGUSR1, signal.SIGUSR2)


def test_each_signal_is_a_byte_and_what_was_in_force_comes_back() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    ignored = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        with signals_as_bytes(signal.SIGUSR1, signal.SIGUSR2) as wakeup:
            for number in (signal.SIGUSR2, signal.SIGUSR1, signal.SIGUSR1):
                os.kill(os.getpid(), number)
            assert os.read(wakeup, 64) == bytes([signal.SIGUSR1]) * 2
            assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(wakeup)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == [signal.SIGUSR1]
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.signal(signal.SIGUSR1, before)
        signal.signal(signal.SIGUSR2, ignored)


def test_the_ends_of_children_are_told_though_our_parent_ignored_them() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        expect_children()
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
        assert signal.SIGCHLD not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        signal.signal(signal.SIGCHLD, handler := lambda *_: None)
        expect_children()
        assert signal.getsignal(signal.SIGCHLD) is handler
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        signal.signal(signal.SIGCHLD, before)


AGENT = """
import json, os, signal, sys
from slipstream.cluster.launch.processes import exit_status, signal_group, start_rank

def said(pipe):
    with pipe:
        return pipe.read().decode()

def tell(*values):
    print(json.dumps(values))

argv, folder, environ = json.loads(sys.argv[1])
"""


def as_agent(program: str, argv: list[str], folder: str = "/", environ: Any = ()) -> Any:
    """Run a program that starts ranks from its only thread, and return its output."""
    start = json.dumps((argv, folder, dict(environ)))
    command = [sys.executable, "-c", AGENT + program, start]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill -15 $$", -15)]
)
def test_a_status_is_a_code_or_minus_a_signal_and_the_process_stays(
    script: str, status: int
) -> None:
    program = """
rank = start_rank(argv, folder, environ)
os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
seen = exit_status(rank.pid), exit_status(rank.pid)
signal_group(rank.pid, signal.SIGTERM)
last = rank.wait()
signal_group(rank.pid, signal.SIGTERM)  # nobody is left
tell(*seen, last)
"""
    assert as_agent(program, ["sh", "-c", script]) == [status] * 3


def test_a_rank_has_pipes_a_session_its_folder_and_the_environment_and_no_input(
    tmp_path: Path,
) -> None:
    script = "import os, sys; sys.stdout.write(repr((os.getsid(0) == os.getpid(), os.getcwd(),"
    script += " os.environ['X'], sys.stdin.read()))); sys.stderr.write('error')"
    program = """
rank = start_rank(argv, folder, environ)
tell(*map(bytes.decode, rank.communicate()))
"""
    out, err = as_agent(program, [sys.executable, "-c", script], str(tmp_path), {"X": "y"})
    assert out == repr((True, str(tmp_path), "y", ""))
    assert err == "error"


def test_a_rank_that_runs_has_no_status_and_a_signal_reaches_its_group() -> None:
    program = """
rank = start_rank(argv, folder, environ)
up = rank.stdout.read(3).decode()
status = exit_status(rank.pid)
signal_group(rank.pid, signal.SIGKILL)
tell(up, status, said(rank.stdout), rank.wait())
"""
    seen = as_agent(program, ["sh", "-c", "echo up; sleep 1000; exit 0"])
    assert seen == ["up\n", None, "", -9]  # the sleep has ended as well


def test_a_rank_on_the_launchers_terminal_writes_there() -> None:
    program = """
readable, writable = os.pipe()
rank = start_rank(argv, folder, environ, (writable, writable))
os.close(writable)
tell(rank.stdout, rank.stderr, rank.wait(), said(open(readable, "rb")))
"""
    seen = as_agent(program, ["sh", "-c", "echo out; echo err >&2"])
    assert seen == [None, None, 0, "out\nerr\n"]


@pytest.mark.parametrize(
    ("argv", "folder", "error"),
    [
        ("no such program", "/", "FileNotFoundError"),
        ("true", "/no such folder", "FileNotFoundError"),
        ("/", "/", "PermissionError"),
    ],
)
def test_what_cannot_be_started_is_an_error(argv: str, folder: str, error: str) -> None:
    program = """
try:
    start_rank(argv, folder, environ)
except OSError as error:
    tell(type(error).__name__)
"""
    assert as_agent(program, [argv], folder, {"PATH": os.environ["PATH"]}) == [error]
