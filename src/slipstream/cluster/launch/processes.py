"""Ranks as Linux processes that do not outlive the agent; a rank ends with all its children.

A rank leads a process group and a session of its own. Linux kills a rank when the agent dies
(PR_SET_PDEATHSIG), and makes the agent the parent of the rank's orphans (PR_SET_CHILD_SUBREAPER).
An ended rank stays a zombie until the agent ends. So no other process group can get the rank's
number, and signals to this number reach no other process.
"""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

KILL_SECONDS = 5.0  # a killed process that stays longer hangs in the kernel and is not waited for

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Make this process the parent of the orphans among its descendants."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start_rank(
    argv: Sequence[str],
    cwd: str,
    environ: Mapping[str, str],
    terminal: Sequence[int] = (),
    inherited: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Start one rank; the calling process must have a single thread.

    Args:
        argv: Program and its arguments.
        cwd: Working directory.
        environ: Complete environment of the rank.
        terminal: File descriptors for standard output and standard error. If `terminal` is empty
            (the default), this function creates pipes.
        inherited: Further file descriptors that the rank inherits (default none).

    Raises:
        OSError: the directory or program does not exist, or the program may not be executed.
    """
    parent = os.getpid()

    def die_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    out, err = terminal or (subprocess.PIPE, subprocess.PIPE)
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        bufsize=0,
        pass_fds=inherited,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def exit_status(pid: int) -> int | None:
    """Return a child's exit code or negative signal number, or None while it runs; reap nothing."""
    result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def signal_group(leader: int, number: int) -> None:
    """Send a signal to a rank's process group, if the group still exists; reap nothing."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return


def reap_orphans(ranks: Sequence[int]) -> None:
    """Reap the adopted processes that have ended, but not the ranks."""
    for pid in _children():
        if pid not in ranks:
            os.waitpid(pid, os.WNOHANG)


def kill_descendants() -> None:
    """Kill and reap every descendant of this process; blocks until all descendants are gone.

    The children of a killed process become children of this process, so a few rounds reach all
    descendants, including those that have sessions of their own.
    """
    deadline = time.monotonic() + KILL_SECONDS
    while (children := _children()) and time.monotonic() < deadline:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.005)


def _children() -> list[int]:
    parent = os.getpid()
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _parent(path) == parent]


def _parent(process: Path) -> int | None:
    try:
        stat = (process / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[1])
