"""Comparison of backends: a script runs once with each backend, in labs with equal settings."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.errors import UsageError
from slipstream.lab.lab import Lab
from slipstream.lab.network import LabCounters
from slipstream.lab.outcome import RankFailure
from slipstream.lab.ranks import LabRun
from slipstream.lab.relay_lab import open_lab

BACKENDS = ("gloo", "slipstream")
SAMPLE_SECONDS = 0.5  # seconds between two readings of the link counters


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Progress of the script's run with one backend.

    Args:
        backend: Name of the torch.distributed backend, such as "gloo".
        state: State of the run: "waiting", "running", "done" or "failed".
        elapsed_seconds: Seconds since the run's processes were started.
        rates: Bit rates at which hosts sent, in bits per second: one mean over all hosts for each
            half second of the run.
        traffic: Traffic on the links since the start of the run; None before the start.
        last_line: Last line of rank 0's output.
        training_seconds: Seconds from the script's first process group to the end of the script;
            None if the script has not ended, or has made no process group.
        failure: Exit status and last output of the rank that failed first; None if none failed.
    """

    backend: str
    state: str = "waiting"
    elapsed_seconds: float = 0.0
    rates: tuple[float, ...] = field(default=())
    traffic: LabCounters | None = None
    last_line: str = ""
    training_seconds: float | None = None
    failure: RankFailure | None = None


OnProgress = Callable[[Sequence[Progress]], None]


def compare(
    lab: Lab,
    command: Sequence[str],
    *,
    backends: Sequence[str] = BACKENDS,
    together: bool = False,
    on_progress: OnProgress,
) -> tuple[Progress, ...]:
    """Run a script once per backend, and return when all runs have ended.

    A failed run does not end the other runs.

    Args:
        lab: Lab in which the script runs.
        command: Path of a .py file, or -m and a module, followed by the script's arguments.
        backends: Names of the backends for `torch.distributed.init_process_group` (default gloo and
            slipstream).
        together: Whether to run all backends at the same time, each in its own lab (default False:
            one after another).
        on_progress: Function that receives the progress of all runs; it is called twice a second.

    Returns:
        The final progress of each run, in the order of `backends`.

    Raises:
        UsageError: the command is not a Python script.
    """
    if not command or not (command[0].endswith(".py") or command[0] == "-m"):
        raise UsageError(
            f"the script is {' '.join(command)!r}; allowed: a .py file, or -m and a module, because"
            " only the backend of a Python script can be replaced"
        )
    runs = [Progress(backend=backend) for backend in backends]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipstream-lab-")))
        labs = [lab] * len(backends)
        if together:
            labs[1:] = [
                stack.enter_context(open_lab(lab.spec, relay=lab.is_relayed)) for _ in backends[1:]
            ]
        waiting = list(range(len(backends)))
        running: dict[int, _LabContender] = {}
        while waiting or running:
            for index in waiting[: None if together else int(not running)]:
                waiting.remove(index)
                contender = _LabContender(labs[index], backends[index], command, folder)
                running[index] = contender
                stack.callback(contender.run.end)
            _sample(running, runs)
            on_progress(runs)
    return tuple(runs)


class _LabContender:
    """A started run of the script with one backend."""

    def __init__(self, lab: Lab, backend: str, command: Sequence[str], folder: Path) -> None:
        self._lab = lab
        self._seconds_file = folder / backend
        self._before = lab.counters()
        self._began = time.monotonic()
        start = [sys.executable, "-m", "slipstream.lab.backend", backend, str(self._seconds_file)]
        self.run: LabRun = lab.start([*start, *command])

    def progress(self, last: Progress) -> Progress:
        """Wait half a second or until the run ends, and return the progress of the run."""
        ended = self.run.has_ended(SAMPLE_SECONDS)
        traffic = self._lab.counters().since(self._before)
        seconds = time.monotonic() - self._began
        earlier = _sent(last.traffic) if last.traffic else 0
        rate = (_sent(traffic) - earlier) * 8 / max(seconds - last.elapsed_seconds, 1e-3)
        now = dataclasses.replace(
            last,
            state="running",
            elapsed_seconds=seconds,
            rates=(*last.rates, rate / len(traffic.hosts)),
            traffic=traffic,
            last_line=self.run.last_line(0),
        )
        return self._finished(now) if ended else now

    def _finished(self, last: Progress) -> Progress:
        result = self.run.wait()
        has_time = self._seconds_file.exists()
        return dataclasses.replace(
            last,
            state="failed" if result.failure else "done",
            elapsed_seconds=result.seconds,
            failure=result.failure,
            training_seconds=float(self._seconds_file.read_text()) if has_time else None,
        )


def _sample(running: dict[int, _LabContender], runs: list[Progress]) -> None:
    for index, contender in list(running.items()):
        runs[index] = contender.progress(runs[index])
        if runs[index].state != "running":
            del running[index]


def _sent(counters: LabCounters) -> int:
    return sum(link.sent_bytes for link in counters.hosts)
