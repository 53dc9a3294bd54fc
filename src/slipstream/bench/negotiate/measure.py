"""Measurement of the time that ranks need to agree on one order of tensors.

    report = measure(NegotiateSpec(ranks=(4, 8)))

The ranks are processes on this machine. For larger numbers of ranks, the C++ program
`negotiate_bench` measures ranks that are threads, connected by simulated links with a delay.
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

NUM_LAST_LINES = 20  # last lines of a failed program's output, which the error quotes
NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}

OnNote = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class NegotiateSpec:
    """Settings of a run of the negotiation benchmark.

    Args:
        ranks: Sizes of the measured groups in ranks, each at least 2.
        tensors: Number of tensors of 1 KB, at least 1; every rank submits them in its own order.
        rounds: Number of rounds, at least 1; each round measures every method once.
        cycle_seconds: Shortest time in seconds between the starts of consecutive rounds of our
            negotiation, at least 0 (default 0).
        scaling: Path of the program `negotiate_bench` (default None: the program is not run).
    """

    ranks: tuple[int, ...] = (4, 8, 16)
    tensors: int = 1000
    rounds: int = 5
    cycle_seconds: float = 0.0
    scaling: Path | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if not self.ranks or min(self.ranks) < 2:
            ranks = ",".join(map(str, self.ranks))
            raise UsageError(f"ranks is {ranks!r}; allowed: one or more numbers from 2")
        for name in ("tensors", "rounds"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; allowed: at least 1")
        if self.cycle_seconds < 0:
            raise UsageError(f"cycle_seconds is {self.cycle_seconds}; allowed: at least 0")
        if self.scaling is not None and not self.scaling.is_file():
            raise UsageError(
                f"{self.scaling} does not exist; `make bench-core` builds negotiate_bench"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingRow:
    """Cost of a round of negotiation among threads, measured by the program `negotiate_bench`.

    Args:
        ranks: Number of ranks, each of which is a thread.
        delay_seconds: Delay of every message in seconds.
        seconds: Seconds of a round of negotiation.
        messages: Number of messages that one rank sends and receives in a round.
    """

    ranks: int
    delay_seconds: float
    seconds: float
    messages: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NegotiateReport:
    """Results of a run of the negotiation benchmark.

    Args:
        spec: Settings of the measurement.
        results: Results of the negotiation methods, by number of ranks.
        scaling: Results of `negotiate_bench`; empty if the program was not run.
    """

    spec: NegotiateSpec
    results: dict[int, list[Negotiated]]
    scaling: tuple[ScalingRow, ...]


def measure(spec: NegotiateSpec, on_note: OnNote) -> NegotiateReport:
    """Run the measurement, which takes about ten seconds for each number of ranks.

    Args:
        spec: Settings of the measurement.
        on_note: Function that receives the name of the next measurement.

    Raises:
        SlipstreamError: a rank failed; the message quotes the last lines of its output.
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
    for benchmark in json.loads(text)["benchmarks"]:
        parts = benchmark["name"].split("/")[1:]
        arguments = dict(part.split(":") for part in parts if ":" in part)
        rows.append(
            ScalingRow(
                ranks=int(arguments["ranks"]),
                delay_seconds=int(arguments["delay_us"]) / 1e6,
                seconds=benchmark["real_time"] * NANOSECONDS[benchmark["time_unit"]] / 1e9,
                messages=benchmark["messages"],
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
