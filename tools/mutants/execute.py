"""Test of a mutant: change the file, run the tests, and restore the file.

A failed test kills a mutant only if the test also fails when it runs alone, and passes on the
original source. Therefore flaky tests rarely kill a mutant. Tests that exceed their time limit kill
a mutant only if, without the mutant, they end within the limit. A mutant counts as not compiling
only if the original source compiles. If a failure does not meet these conditions, the result of the
mutant is unclear.
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
received: list[int] = []  # signals that asked this program to stop
FAILURES = (
    re.compile(r"^(?:FAILED|ERROR) (?P<test>tests/.+?)(?: - .*)?$", re.MULTILINE),
    re.compile(r"^\s*\d+ - (?P<test>\w+) \((?!Passed)", re.MULTILINE),
)


@dataclass(frozen=True)
class Ended:
    """Result of a command that has ended.

    Args:
        ok: Whether the command succeeded.
        test: Name of the first failed test, TIMED_OUT, or the last line of an output that names no
            test.
    """

    ok: bool
    test: str = ""


def refuse_changes(root: Path) -> None:
    """Exit if a tracked file has changes, because they would mix with a mutant's changes."""
    listed = git(root, "status", "--porcelain", "--untracked-files=no").splitlines()
    changed = [line for line in listed if not line.endswith(str(RESULTS))]
    if changed:
        sys.exit("the checkout has changes; commit them first:\n" + "\n".join(changed))


def git(root: Path, *command: str) -> str:
    """Return the output of git."""
    return subprocess.run(
        ["git", *command], cwd=root, check=True, capture_output=True, text=True
    ).stdout.rstrip("\n")


def limit_memory() -> None:
    """Limit this process and its children to half of the machine's memory."""
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    resource.setrlimit(resource.RLIMIT_DATA, (half, half))


@contextmanager
def changed(texts: Mapping[Path, str]) -> Generator[Callable[[], None]]:
    """Write new texts to files, and yield a function that restores the old texts.

    The end of the `with` block also restores the old texts. Every signal except SIGKILL restores
    the old texts at once, even while a command runs. After a signal, this program waits for the
    running command and then exits; a second signal kills the command. The signal handlers raise no
    exceptions, because an exception between the start of a command and the code that ends it would
    leave the command running.
    """
    originals = {path: path.read_text(encoding="utf-8") for path in texts}

    def restore() -> None:
        for path, text in originals.items():
            # If a file were written again, it would be newer than the outputs that make has built
            # from it.
            if path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")

    def stop(number: int, frame: object) -> None:
        restore()
        received.append(number)

    handled = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in handled}
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
    """Exit if a signal has arrived."""
    if received:
        sys.exit(f"stopped by signal {received[0]}")


def mutated(root: Path, mutant: Mutant) -> AbstractContextManager[Callable[[], None]]:
    """Change the file of a mutant inside a `with` block, as `changed` does."""
    path = root / mutant.file
    return changed({path: apply(path.read_text(encoding="utf-8"), mutant.change)})


def execute(root: Path, command: list[str], limit: float) -> Ended:
    """Run a command in its own process group, and end all processes of the group afterwards."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        # Otherwise Python would reuse the bytecode of a changed source whose size and time are the
        # same.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # This is not a pipe, because left-over processes would keep a pipe open.
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
    """Return the exit code of a process; None after the time limit or a signal."""
    deadline = time.monotonic() + limit
    while not received and time.monotonic() < deadline:
        try:
            return started.wait(0.1)
        except subprocess.TimeoutExpired:
            pass
    return started.poll()


def end_group(started: subprocess.Popen[bytes], patience: float = 20) -> None:
    """End the remaining processes of a process group.

    Processes get SIGINT first, so that pytest can clean up, and SIGKILL when `patience` seconds are
    over or this program has received a second signal.
    """
    deadline = time.monotonic() + patience
    signal_group(started, signal.SIGINT)
    while signal_group(started, 0) and time.monotonic() < deadline and len(received) < 2:
        time.sleep(0.1)
    signal_group(started, signal.SIGKILL)
    started.wait()


def signal_group(started: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to a process group, and return whether the group still exists."""
    started.poll()  # otherwise a leader that has ended would still count as a process of the group
    try:
        os.killpg(started.pid, number)
    except ProcessLookupError:
        return False
    return True


def first_failed(output: str) -> str:
    """Return the first failed test in the output of pytest or ctest, or else the last line."""
    for pattern in FAILURES:
        match = pattern.search(output)
        if match:
            return match["test"]
    return (output.strip().splitlines() or ["nothing was printed"])[-1]


class UnclearError(Exception):
    """A test or build failed on a mutant, but perhaps not because of the mutant."""


def meet(
    root: Path,
    mutant: Mutant,
    tests: list[list[str]],
    limit: float,
    build: Sequence[list[str]] = (),
) -> Ended | None:
    """Run tests on a mutant, and return the result; None if the mutant does not compile.

    Args:
        root: Folder of the checkout.
        mutant: Mutant to test.
        tests: Commands that run the tests, one after another.
        limit: Time limit of each test command in seconds.
        build: Commands that run before the tests. If INSTALL is one of these commands, it runs
            again after the tests, because the installed package contains the mutant.
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
    """Build and test a mutant whose file is already changed; return None if it does not compile."""
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
    """Run commands until one fails, and return the last result."""
    for command in commands:
        ended = execute(root, command, limit)
        if not ended.ok:
            return ended
    return Ended(True)


def compare(root: Path, ended: Ended, tests: list[list[str]], limit: float) -> None:
    """Raise UnclearError unless the original source passes the tests that the mutant failed."""
    if ended.test != TIMED_OUT:
        must_pass(root, command_of(ended.test), TEST_SECONDS)
        return
    for command in tests:
        must_pass_once(root, tuple(command), limit)


def must_pass(root: Path, command: Sequence[str], limit: float) -> None:
    """Raise UnclearError if a command fails or exceeds its time limit."""
    ended = execute(root, [*command], limit)
    if not ended.ok:
        raise UnclearError(f"{' '.join(command)} fails without the mutant too: {ended.test}")


must_pass_once = cache(must_pass)  # cached, because a check may take up to its time limit
