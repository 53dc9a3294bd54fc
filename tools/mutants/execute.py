"""Applies one mutant, lets tests meet it, and restores the file.

A mutant is killed or set aside only if the original fares better. A test that fails kills it only
if it fails again when it runs alone, and passes without the mutant; so few flaky tests kill one.
Tests that have no end kill it only if they pass in the same time without it. It counts as not
compiling only if the original is built. All else is unclear.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .commands import BUILD_SECONDS, INSTALL, TEST_SECONDS, command_of
from .draw import Mutant
from .results import RESULTS
from .sites import apply

SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
TIMED_OUT = "no end within the limit"
received: list[int] = []  # signals that ask this program to stop
FAILURES = (
    re.compile(r"^(?:FAILED|ERROR) (?P<test>tests/.+?)(?: - .*)?$", re.MULTILINE),
    re.compile(r"^\s*\d+ - (?P<test>\w+) \((?!Passed)", re.MULTILINE),
)


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Args:
        test: First failed test; TIMED_OUT; the last line of the output if it names no test.
    """

    ok: bool
    test: str = ""


def refuse_changes(root: Path) -> None:
    """Exit if a tracked file differs from the commit: a mutant would be mixed with the changes."""
    listed = git(root, "status", "--porcelain", "--untracked-files=no").splitlines()
    changed = [line for line in listed if not line.endswith(str(RESULTS))]
    if changed:
        sys.exit("the checkout has changes; commit them first:\n" + "\n".join(changed))


def git(root: Path, *command: str) -> str:
    """Return what git says."""
    return subprocess.run(
        ["git", *command], cwd=root, check=True, capture_output=True, text=True
    ).stdout.rstrip("\n")


def limit_memory() -> None:
    """Let no process that is started from here allocate more than half of the machine's memory."""
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    resource.setrlimit(resource.RLIMIT_DATA, (half, half))


@contextmanager
def changed(texts: Mapping[Path, str]) -> Generator[Callable[[], None]]:
    """Give files other texts; what is yielded restores them, and so do the end and a signal.

    A signal restores them before anything that was started has ended. SIGKILL does not. The program
    ends when what was started has; a second signal kills that. No signal raises an exception where
    it arrives: it could arrive between the start of a command and what ends it.
    """
    originals = {path: path.read_text(encoding="utf-8") for path in texts}

    def restore() -> None:
        for path, text in originals.items():
            # What make has made from a restored file would be older than one written again.
            if path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")

    def stop(number: int, frame: object) -> None:
        restore()
        received.append(number)

    heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        yield restore
    finally:
        restore()
        for number, handler in before.items():
            signal.signal(number, handler)
        stop_if_asked()


def stop_if_asked() -> None:
    """Exit if a signal was received."""
    if received:
        sys.exit(f"stopped by signal {received[0]}")


def mutated(root: Path, mutant: Mutant) -> AbstractContextManager[Callable[[], None]]:
    """Change the file of a mutant as `changed` does."""
    path = root / mutant.file
    return changed({path: apply(path.read_text(encoding="utf-8"), mutant.change)})


def execute(root: Path, command: list[str], limit: float) -> Ended:
    """Run a command in a process group of its own; what stays in that group ends with it."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        # Python takes bytecode for current if the source has the same second and size.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # A file, since a pipe ends only when the last process that was left behind has closed it.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        started = subprocess.Popen(
            command,
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = wait(started, limit)
        end_group(started)
        stop_if_asked()
        if code is None:
            return Ended(False, TIMED_OUT)
        output.seek(0)
        return Ended(True) if code == 0 else Ended(False, first_failed(output.read()))


def wait(started: subprocess.Popen[bytes], limit: float) -> int | None:
    """Return how it ended; None if it has not within the limit, or before a signal."""
    deadline = time.monotonic() + limit
    while not received and time.monotonic() < deadline:
        try:
            return started.wait(0.1)
        except subprocess.TimeoutExpired:
            pass
    return started.poll()


def end_group(started: subprocess.Popen[bytes], patience: float = 20) -> None:
    """End what is left of a process group: pytest may clean up first, unless a second signal
    comes."""
    deadline = time.monotonic() + patience
    signal_group(started, signal.SIGINT)
    while signal_group(started, 0) and time.monotonic() < deadline and len(received) < 2:
        time.sleep(0.1)
    signal_group(started, signal.SIGKILL)
    started.wait()


def signal_group(started: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to what is left of a process group, and return whether anything is."""
    started.poll()  # or it would stay in the group when it has ended
    try:
        os.killpg(started.pid, number)
    except ProcessLookupError:
        return False
    return True


def first_failed(output: str) -> str:
    """Return the first failed test of pytest's or ctest's output, else the output's last line."""
    for pattern in FAILURES:
        found = pattern.search(output)
        if found:
            return found["test"]
    return (output.strip().splitlines() or ["nothing was printed"])[-1]


class UnclearError(Exception):
    """What happened with the mutant does not tell it from the original."""


def meet(
    root: Path,
    mutant: Mutant,
    tests: list[list[str]],
    limit: float,
    build: Sequence[list[str]] = (),
) -> Ended | None:
    """Let tests meet a mutant, and return how they ended; None if it does not compile.

    Args:
        limit: Seconds for each command of the tests.
        build: Commands that come before the tests; what INSTALL installs of a mutant never stays.
    """
    with mutated(root, mutant) as restore:
        try:
            ended = meet_mutant(root, mutant, tests, limit, build)
        finally:
            restore()
            if INSTALL in build:
                execute(root, INSTALL, BUILD_SECONDS)
        for command in build:
            must_pass(root, command, BUILD_SECONDS)
        if ended is not None and not ended.ok:
            compare(root, ended, tests, limit)
    return ended


def meet_mutant(
    root: Path, mutant: Mutant, tests: list[list[str]], limit: float, build: Sequence[list[str]]
) -> Ended | None:
    """Let tests meet a mutant that is in its file; return None if it is not built."""
    start = time.monotonic()
    built = execute_all(root, build, BUILD_SECONDS)
    if built.test == TIMED_OUT:
        raise UnclearError(f"its build had {TIMED_OUT}")
    if not built.ok:
        return None
    ended = execute_all(root, tests, limit)
    mutant.seconds = round(time.monotonic() - start, 1)
    is_test = not ended.ok and ended.test != TIMED_OUT
    if is_test and execute(root, command_of(ended.test), TEST_SECONDS).ok:
        raise UnclearError(f"{ended.test} fails, but not alone")
    return ended


def execute_all(root: Path, commands: Iterable[list[str]], limit: float) -> Ended:
    """Run commands until one fails."""
    for command in commands:
        ended = execute(root, command, limit)
        if not ended.ok:
            return ended
    return Ended(True)


def compare(root: Path, ended: Ended, tests: list[list[str]], limit: float) -> None:
    """Raise UnclearError unless the original passes what the mutant did not."""
    if ended.test != TIMED_OUT:
        must_pass(root, command_of(ended.test), TEST_SECONDS)
        return
    for command in tests:
        must_pass_once(root, tuple(command), limit)


def must_pass(root: Path, command: Sequence[str], limit: float) -> None:
    """Raise UnclearError if a command fails, or has no end within the limit."""
    ended = execute(root, [*command], limit)
    if not ended.ok:
        raise UnclearError(f"{' '.join(command)} fails without the mutant too: {ended.test}")


must_pass_once = cache(must_pass)  # takes as long as a mutant that hangs
