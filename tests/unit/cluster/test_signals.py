"""Signals as bytes, and processes that are waited for and not reaped."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.cluster.processes import exit_status, signal_group, start_rank
from slipstream.cluster.signals import (
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


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill -15 $$", -15)]
)
def test_a_status_is_a_code_or_minus_a_signal_and_the_process_stays(
    script: str, status: int
) -> None:
    rank = start_rank(["sh", "-c", script], "/", {})
    os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
    assert exit_status(rank.pid) == status
    assert exit_status(rank.pid) == status
    signal_group(rank.pid, signal.SIGTERM)
    assert rank.wait() == status
    signal_group(rank.pid, signal.SIGTERM)  # nobody is left
    _close(rank)


def test_a_rank_has_pipes_a_session_its_folder_and_the_environment_and_no_input(
    tmp_path: Path,
) -> None:
    script = "import os, sys; sys.stdout.write(repr((os.getsid(0) == os.getpid(), os.getcwd(),"
    script += " os.environ['X'], sys.stdin.read()))); sys.stderr.write('error')"
    rank = start_rank([sys.executable, "-c", script], str(tmp_path), {"X": "y"})
    out, err = rank.communicate()
    assert out.decode() == repr((True, str(tmp_path), "y", ""))
    assert err == b"error"


def test_a_rank_that_runs_has_no_status_and_a_signal_reaches_its_group() -> None:
    rank = start_rank(["sh", "-c", "echo up; sleep 1000; exit 0"], "/", {})
    assert rank.stdout is not None
    assert rank.stdout.read(3) == b"up\n"
    assert exit_status(rank.pid) is None
    signal_group(rank.pid, signal.SIGKILL)
    assert rank.stdout.read() == b""  # the sleep has ended as well
    assert rank.wait() == -9
    _close(rank)


def test_a_rank_on_the_launchers_terminal_writes_there() -> None:
    readable, writable = os.pipe()
    rank = start_rank(["sh", "-c", "echo out; echo err >&2"], "/", {}, (writable, writable))
    os.close(writable)
    assert (rank.stdout, rank.stderr) == (None, None)
    assert rank.wait() == 0
    assert os.read(readable, 100) == b"out\nerr\n"
    os.close(readable)


@pytest.mark.parametrize(
    ("program", "folder"), [("no such program", "/"), ("true", "/no such folder"), ("/", "/")]
)
def test_what_cannot_be_started_is_an_error(program: str, folder: str) -> None:
    with pytest.raises(OSError, match=r"No such file|Permission denied"):
        start_rank([program], folder, dict(os.environ))


def _close(rank: "subprocess.Popen[bytes]") -> None:
    for pipe in (rank.stdout, rank.stderr):
        assert pipe is not None
        pipe.close()
