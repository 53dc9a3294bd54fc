"""Measures how fast ranks agree on an order of tensors, beside a coordinating rank 0.

    report = measure(NegotiateSpec(ranks=(4, 8)))

Ranks are processes of this machine. How rounds grow with the number of ranks is measured by a
program of the core, negotiate_bench, whose ranks are threads over links with a delay.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slipstream.bench.negotiate.job import Negotiated, NegotiateJob, read_results
from slipstream.errors import SlipstreamError, UsageError

NUM_LAST_LINES = 20
NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}

OnNote = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class NegotiateSpec:
    """Settings of a measurement of negotiation.

    Args:
        ranks: numbers of processes, each 2 or more.
        tensors: Number of tensors of 1 KB, at least 1; every rank submits them in an order of its
            own.
        rounds: Number of rounds, at least 1; every contender has one turn in each.
        cycle_seconds: Shortest time between the starts of two rounds of ours, 0 or more.
        scaling: the program negotiate_bench; None: without it.
    """

    ranks: tuple[int, ...] = (4, 8, 16)
    tensors: int = 1000
    rounds: int = 5
    cycle_seconds: float = 0.0
    scaling: Path | None = None

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        if not self.ranks or min(self.ranks) < 2:
            raise UsageError(
                f"ranks are {self.ranks}; allowed: one number or more, each at least 2"
            )
        for name in ("tensors", "rounds"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; allowed: 1 and more")
        if self.cycle_seconds < 0:
            raise UsageError(f"cycle_seconds is {self.cycle_seconds}; allowed: 0 and more")
        if self.scaling is not None and not self.scaling.is_file():
            raise UsageError(
                f"{self.scaling} is no program; `make bench-core` builds negotiate_bench"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingRow:
    """A round among threads.

    Args:
        ranks: their number.
        delay_seconds: Delay of every message.
        seconds: Seconds of a round.
        messages: Messages that one rank sends and receives in a round.
    """

    ranks: int
    delay_seconds: float
    seconds: float
    messages: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NegotiateReport:
    """Everything that was measured.

    Args:
        spec: Settings of the measurement.
        results: Results by number of ranks.
        scaling: Rows of rounds among threads; empty unless asked for.
    """

    spec: NegotiateSpec
    results: dict[int, list[Negotiated]]
    scaling: tuple[ScalingRow, ...]


def measure(spec: NegotiateSpec, on_note: OnNote) -> NegotiateReport:
    """Run the measurement, and block for about ten seconds for each number of ranks.

    Args:
        spec: Settings of the measurement.
        on_note: is told what is measured at the moment.

    Raises:
        SlipstreamError: a rank failed; the message has its last lines.
    """
    results: dict[int, list[Negotiated]] = {}
    for ranks in spec.ranks:
        on_note(f"{spec.tensors:,} tensors among {ranks} ranks")
        results[ranks] = _among_processes(spec, ranks)
    scaling: tuple[ScalingRow, ...] = ()
    if spec.scaling is not None:
        on_note("rounds among up to 256 threads")
        scaling = _among_threads(spec.scaling)
    return NegotiateReport(spec=spec, results=results, scaling=scaling)


def _among_processes(spec: NegotiateSpec, ranks: int) -> list[Negotiated]:
    with tempfile.TemporaryDirectory(prefix="slipstream-negotiate-") as folder:
        output = Path(folder) / "results.json"
        job = NegotiateJob(
            tensors=spec.tensors,
            rounds=spec.rounds,
            cycle_seconds=spec.cycle_seconds,
            output=str(output),
        )
        launcher = [sys.executable, "-m", "slipstream.cli", "run", "-n", str(ranks), "--no-color"]
        _output_of([*launcher, "-m", "slipstream.bench.negotiate.rank", job.as_text()])
        return read_results(output)


def _among_threads(program: Path) -> tuple[ScalingRow, ...]:
    text = _output_of([str(program.absolute()), "--benchmark_format=json"])
    rows: list[ScalingRow] = []
    for each in json.loads(text)["benchmarks"]:
        arguments = dict(part.split(":") for part in each["name"].split("/")[1:] if ":" in part)
        rows.append(
            ScalingRow(
                ranks=int(arguments["ranks"]),
                delay_seconds=int(arguments["delay_us"]) / 1e6,
                seconds=each["real_time"] * NANOSECONDS[each["time_unit"]] / 1e9,
                messages=each["messages"],
            )
        )
    return tuple(rows)


def _output_of(command: list[str]) -> str:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stdout + done.stderr).splitlines()[-NUM_LAST_LINES:]
        raise SlipstreamError(
            "\n    ".join([f"{command[0]} ended with {done.returncode}; its last lines:", *last])
        )
    return done.stdout
