"""The copy of a run's reports of progress on the daemon's host, for the scaling of the queue."""

from __future__ import annotations

import logging
import shlex
import subprocess
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from slipstream.cluster.outside import outside
from slipstream.cluster.queue import shim

_log = logging.getLogger(__name__)

# Pause between two looks, and the longest time of one.
LOOK_SECONDS = 10.0
COPY_SECONDS = 30.0


@contextmanager
def copied_progress(shell: Sequence[str], source: str, target: Path) -> Generator[None]:
    """Copy a file of another host again and again during a `with` block, in a thread.

    Args:
        shell: Command that runs a shell command on the host, up to that command.
        source: Path on the host; there need not be such a file.
        target: Path of the copy.
    """
    over = threading.Event()

    def copy_until_over() -> None:
        while not over.wait(LOOK_SECONDS):
            _copy(shell, source, target)

    thread = threading.Thread(target=copy_until_over, name="progress")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _copy(shell: Sequence[str], source: str, target: Path) -> None:
    command = [*shell, f"cat {shlex.quote(source)} 2>/dev/null || true"]
    try:
        with outside("ssh reading the progress"):
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COPY_SECONDS, check=False
            )
    except subprocess.TimeoutExpired:
        _log.info("the progress was not read within %g s", COPY_SECONDS)
        return
    if done.returncode == 0 and done.stdout != (shim.read(target) or ""):
        shim.write_durably(target, done.stdout)
