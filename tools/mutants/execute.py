"""Applies one mutant, lets tests meet it, and restores the file.

A test that fails kills a mutant only if it fails again when it runs alone, and passes without the
mutant: a flaky test kills nothing.
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
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .commands import BUILD, LIMIT_SECONDS, TEST_SECONDS, command_of
from .draw import Mutant
from .parts import PARTS
from .results import RESULTS
from .sites import apply

SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
TIMED_OUT = "no end within the limit"
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

    A signal restores them before anything that was started has ended. SIGKILL does not.
    """
    originals = {path: path.read_text(encoding="utf-8") for path in texts}

    def restore() -> None:
        for path, text in originals.items():
            # What make has made from a restored file would be older than one written again.
            if path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")

    def stop(number: int, frame: object) -> None:
        restore()
        sys.exit(f"stopped by signal {number}")

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
        try:
            code = started.wait(limit)
        except subprocess.TimeoutExpired:
            return Ended(False, TIMED_OUT)
        finally:
            end_group(started)
        output.seek(0)
        return Ended(True) if code == 0 else Ended(False, first_failed(output.read()))


def end_group(started: subprocess.Popen[bytes], patience: float = 20) -> None:
    """End what is left of a process group: pytest may clean up first, unless a signal comes."""
    deadline = time.monotonic() + patience
    try:
        signal_group(started, signal.SIGINT)
        while signal_group(started, 0) and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
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


def builds(root: Path, mutant: Mutant) -> bool:
    """Whether the C++ tests can be built as the files are now; Python needs no build."""
    return not PARTS[mutant.part].is_cpp or execute(root, BUILD, LIMIT_SECONDS["whole"]).ok


class UnclearError(Exception):
    """A test failed that does not tell the mutant from the original."""


def meet(root: Path, mutant: Mutant, commands: list[list[str]], limit: float) -> Ended | None:
    """Let tests meet a mutant, and return how they ended; None if it does not compile."""
    start = time.monotonic()
    with mutated(root, mutant):
        if not builds(root, mutant):
            return None
        ended = Ended(True)
        for command in commands:
            ended = ended if not ended.ok else execute(root, command, limit)
        mutant.seconds = round(time.monotonic() - start, 1)
        if ended.ok or ended.test == TIMED_OUT:
            return ended
        if execute(root, command_of(ended.test), TEST_SECONDS).ok:
            raise UnclearError(f"{ended.test} fails with mutant {mutant.id}, but not alone")
    if not (builds(root, mutant) and execute(root, command_of(ended.test), TEST_SECONDS).ok):
        raise UnclearError(f"{ended.test} fails without mutant {mutant.id} too")
    return ended
