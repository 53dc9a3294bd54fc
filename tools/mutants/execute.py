"""Run of tests on one mutant: the file is changed, the tests run, and the file is restored.

A failed test kills a mutant only if it fails again alone, and passes without the mutant; therefore
flaky tests rarely kill one. Tests that exceed their time limit kill a mutant only if they pass in
the same time without it. A mutant does not compile only if the original does. In all other cases
the mutant is unclear.
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
    """Result of a command.

    Args:
        ok: Whether the command succeeded.
        test: First failed test, or TIMED_OUT, or the last line of an output without a test.
    """

    ok: bool
    test: str = ""


def refuse_changes(root: Path) -> None:
    """Exit if a tracked file has changes, which a mutant would be mixed with."""
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
    """Give files other texts, and yield a function that restores them.

    The end of the block restores them too, and so does every signal but SIGKILL, before the running
    command has ended. The program ends after that command; a second signal kills the command. No
    signal raises an exception, because it could arrive between the start of a command and the code
    that ends the command.
    """
    originals = {path: path.read_text(encoding="utf-8") for path in texts}

    def restore() -> None:
        for path, text in originals.items():
            # A file that is written again would be newer than the outputs that make built from it.
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
    """Exit if a signal was received."""
    if received:
        sys.exit(f"stopped by signal {received[0]}")


def mutated(root: Path, mutant: Mutant) -> AbstractContextManager[Callable[[], None]]:
    """Change the file of a mutant as `changed` does."""
    path = root / mutant.file
    return changed({path: apply(path.read_text(encoding="utf-8"), mutant.change)})


def execute(root: Path, command: list[str], limit: float) -> Ended:
    """Run a command in a process group of its own, and end the group with it."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        # Python would reuse bytecode of a source with the same size and time in seconds.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # Not a pipe, because processes that were left behind would keep it open.
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
    """Return the exit code of a process; None if the time limit or a signal came first."""
    deadline = time.monotonic() + limit
    while not received and time.monotonic() < deadline:
        try:
            return started.wait(0.1)
        except subprocess.TimeoutExpired:
            pass
    return started.poll()


def end_group(started: subprocess.Popen[bytes], patience: float = 20) -> None:
    """End the rest of a process group.

    Pytest may clean up first, unless a second signal comes.
    """
    deadline = time.monotonic() + patience
    signal_group(started, signal.SIGINT)
    while signal_group(started, 0) and time.monotonic() < deadline and len(received) < 2:
        time.sleep(0.1)
    signal_group(started, signal.SIGKILL)
    started.wait()


def signal_group(started: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to the rest of a process group, and return whether the group exists."""
    started.poll()  # without it, an ended leader would stay in the group
    try:
        os.killpg(started.pid, number)
    except ProcessLookupError:
        return False
    return True


def first_failed(output: str) -> str:
    """Return the first failed test of pytest's or ctest's output, else the output's last line."""
    for pattern in FAILURES:
        match = pattern.search(output)
        if match:
            return match["test"]
    return (output.strip().splitlines() or ["nothing was printed"])[-1]


class UnclearError(Exception):
    """The tests do not distinguish the mutant from the original."""


def meet(
    root: Path,
    mutant: Mutant,
    tests: list[list[str]],
    limit: float,
    build: Sequence[list[str]] = (),
) -> Ended | None:
    """Run tests on a mutant, and return their result; None if the mutant does not compile.

    Args:
        root: Folder of the checkout.
        mutant: Mutant to test.
        tests: Commands that run the tests.
        limit: Time limit of each command of the tests, in seconds.
        build: Commands that come before the tests; INSTALL runs again afterwards, to replace the
            mutant.
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
    """Build and test a mutant that is in its file; return None if it does not compile."""
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
    """Raise UnclearError unless the original passes the tests that the mutant failed."""
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


must_pass_once = cache(must_pass)  # cached, because the check takes as long as a hanging mutant
