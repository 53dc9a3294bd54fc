"""One script over several backends, in labs that are alike."""

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

BACKENDS = ("gloo", "slipstream")
SAMPLE_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far one of the runs is.

    Args:
        backend: its name.
        state: waiting, running, done or failed.
        elapsed_seconds: since its processes were started.
        rates: bits per second that a host sent on average, one per half second.
        passed: Traffic that passed the links since the start; None while the run waits.
        last_line: Last line that rank 0 wrote.
        training_seconds: Seconds from the first process group to the end; None before the end.
        failure: Failure of the rank that failed first, or None.
    """

    backend: str
    state: str = "waiting"
    elapsed_seconds: float = 0.0
    rates: tuple[float, ...] = field(default=())
    passed: LabCounters | None = None
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
    """Run a script once per backend; blocks until all have ended. A run that fails ends no other.

    Args:
        lab: Lab in which the program runs.
        command: a .py file, or -m and a module, then its arguments.
        backends: names for `torch.distributed.init_process_group`.
        together: all at once, each in a lab of its own, in place of one after the other.
        on_progress: is given how far each is, twice a second.

    Returns:
        How each went, in the order of `backends`.

    Raises:
        UsageError: the command is no Python script.
    """
    if not command or not (command[0].endswith(".py") or command[0] == "-m"):
        raise UsageError(
            f"the script is {' '.join(command)!r}; allowed: a .py file, or -m and a module, whose"
            " process groups can be given another backend"
        )
    shown = [Progress(backend=backend) for backend in backends]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipstream-lab-")))
        labs = [lab] * len(backends)
        if together:
            labs[1:] = [stack.enter_context(Lab(lab.spec)) for _ in backends[1:]]
        waiting = list(range(len(backends)))
        running: dict[int, _LabContender] = {}
        while waiting or running:
            for index in waiting[: None if together else int(not running)]:
                waiting.remove(index)
                contender = _LabContender(labs[index], backends[index], command, folder)
                running[index] = contender
                stack.callback(contender.run.end)
            _sample(running, shown)
            on_progress(shown)
    return tuple(shown)


class _LabContender:
    """A run of the script over one backend."""

    def __init__(self, lab: Lab, backend: str, command: Sequence[str], folder: Path) -> None:
        self._lab = lab
        self._seconds_file = folder / backend
        self._before = lab.counters()
        self._began = time.monotonic()
        start = [sys.executable, "-m", "slipstream.lab.backend", backend, str(self._seconds_file)]
        self.run: LabRun = lab.start([*start, *command])

    def progress(self, last: Progress) -> Progress:
        """Return how far the run is, half a second after the last time or when it has ended."""
        ended = self.run.has_ended(SAMPLE_SECONDS)
        passed = self._lab.counters().since(self._before)
        seconds = time.monotonic() - self._began
        earlier = _sent(last.passed) if last.passed else 0
        rate = (_sent(passed) - earlier) * 8 / max(seconds - last.elapsed_seconds, 1e-3)
        now = dataclasses.replace(
            last,
            state="running",
            elapsed_seconds=seconds,
            rates=(*last.rates, rate / len(passed.hosts)),
            passed=passed,
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


def _sample(running: dict[int, _LabContender], shown: list[Progress]) -> None:
    for index, contender in list(running.items()):
        shown[index] = contender.progress(shown[index])
        if shown[index].state != "running":
            del running[index]


def _sent(counters: LabCounters) -> int:
    return sum(link.sent_bytes for link in counters.hosts)
