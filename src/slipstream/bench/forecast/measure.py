"""Judges the forecast in the lab: real exchanges of gradients, compute that sleeps.

    report = judge(ForecastSpec(models=("resnet50",)))
    report.mean_error

The lab's links and this machine's processors are measured once, by all-reduces and updates of
their own; each step is forecast from that and then measured. Nothing else should run meanwhile.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.bench.forecast.lab import LabNumbers, OnNote, calibrate
from slipstream.bench.forecast.step import forecast_step
from slipstream.bench.models import ReplayModel, model
from slipstream.bench.replay.job import ReplayJob, ReplaySamples
from slipstream.bench.replay.measure import PEERS, START_LIMIT_SECONDS, STEP_LIMIT_SECONDS
from slipstream.bench.replay.presets import preset
from slipstream.errors import UsageError
from slipstream.lab import Lab, LabSpec
from slipstream.lab.compare import BACKENDS
from slipstream.lab.rates import parse_rate

# Compute is that of this setting, slowed by one factor whatever the links; so they hide little,
# much or all of it.
PRESET = "v100-4x8"


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastSpec:
    """Settings of a comparison of forecasts with measurements.

    Args:
        models: names of models.
        rates: Rates of each host's link, in the lab's notation.
        hosts: Numbers of lab hosts, each at least 2.
        ranks: Ranks on each host, at least 1. More than one needs our backend, which splits groups
            into the ranks of a host and the hosts.
        slower: times that compute is slower than published; 30 makes the network that of the
            published setting where four hosts have 1 Gbit/s.
        backends: Backends of DDP, names of `lab.compare.BACKENDS`.
        steps: measured in each round, at least 1.
        warmup: steps before these in each round, at least 3: DDP makes new buckets in the second.
        rounds: Number of rounds, at least 1; every backend has one turn in each.
        quick: whether the lab is measured in seconds, to try the command, and less well.
    """

    models: tuple[str, ...] = ("resnet50", "vgg16", "bert-base")
    rates: tuple[str, ...] = ("500mbit", "1gbit", "4gbit")
    hosts: tuple[int, ...] = (2, 4)
    ranks: int = 1
    slower: float = 30.0
    backends: tuple[str, ...] = BACKENDS
    steps: int = 3
    warmup: int = 3
    rounds: int = 1
    quick: bool = False

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        for name, value, least in (
            ("hosts", min(self.hosts, default=0), 2),
            ("ranks", self.ranks, 1),
            ("steps", self.steps, 1),
            ("warmup", self.warmup, 3),
            ("rounds", self.rounds, 1),
        ):
            if value < least:
                raise UsageError(f"{name} is {value}; allowed: {least} and more")
        for name in self.backends:
            if name not in BACKENDS:
                raise UsageError(f"the backend is {name!r}; allowed: {', '.join(BACKENDS)}")
        if self.ranks > 1 and "gloo" in self.backends:
            raise UsageError(
                f"ranks is {self.ranks} and backends has gloo, which does not know hosts; allowed"
                " is slipstream alone"
            )
        if not self.slower > 0:
            raise UsageError(f"slower is {self.slower:g}; more than 0 is needed")
        for rate in self.rates:
            parse_rate(rate)
        for name in self.models:
            model(name)

    def labs(self) -> Iterator[LabSpec]:
        """Yield the labs, one after the other."""
        for hosts in self.hosts:
            for rate in self.rates:
                yield LabSpec(hosts=hosts, ranks_per_host=self.ranks, rate=rate)

    def compute_seconds(self, replayed: ReplayModel) -> float:
        """Return the forward and backward passes of a model, as they are replayed.

        Args:
            replayed: the model.
        """
        return preset(PRESET).step_seconds(replayed) * self.slower


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastRow:
    """A step, forecast and measured.

    Args:
        model: its name.
        backend: Backend of DDP.
        hosts: Number of lab hosts.
        ranks: Ranks on each host.
        rate: Rate of each host's link.
        forecast: seconds.
        measured: steps.
    """

    model: str
    backend: str
    hosts: int
    ranks: int
    rate: str
    forecast: float
    measured: ReplaySamples

    @property
    def error(self) -> float:
        """Relative error of the forecast; positive if it is too high."""
        return self.forecast / self.measured.median - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastReport:
    """All rows, and the numbers behind their forecasts.

    Args:
        spec: Settings of the measurement.
        numbers: Numbers that were measured before the steps.
        rows: Rows of the report, at least one.
    """

    spec: ForecastSpec
    numbers: LabNumbers
    rows: tuple[ForecastRow, ...]

    @property
    def mean_error(self) -> float:
        """The mean of the errors' sizes, as a share."""
        return mean_error(self.rows)

    @property
    def high_error(self) -> float:
        """The size that nine in ten errors have at most, as a share."""
        return high_error(self.rows)

    def of(self, backend: str) -> tuple[ForecastRow, ...]:
        """Return the rows of a backend."""
        return tuple(row for row in self.rows if row.backend == backend)


def mean_error(rows: Sequence[ForecastRow]) -> float:
    """Return the mean of the errors' sizes, as a share.

    Args:
        rows: Rows of a report, at least one.
    """
    return statistics.fmean(abs(row.error) for row in rows)


def high_error(rows: Sequence[ForecastRow]) -> float:
    """Return the size that nine in ten errors have at most, as a share.

    Args:
        rows: Rows of a report, at least one.
    """
    sizes = sorted(abs(row.error) for row in rows)
    return sizes[-(-9 * len(sizes) // 10) - 1]


def judge(spec: ForecastSpec, on_note: OnNote | None = None) -> ForecastReport:
    """Measure the lab, then forecasts and measure steps, and block for many minutes.

    Args:
        spec: Settings of the measurement.
        on_note: is told what is measured next.

    Raises:
        UnsupportedError: the lab cannot be made; it needs root and iproute2.
        SlipstreamError: a rank failed.
    """
    tell = on_note or _ignore
    numbers = calibrate(tell, several=spec.ranks > 1, quick=spec.quick)
    rows: list[ForecastRow] = []
    for lab_spec in spec.labs():
        with Lab(lab_spec) as lab:
            for name in spec.models:
                rows += _rows(spec, lab, model(name), numbers, tell)
    return ForecastReport(spec=spec, numbers=numbers, rows=tuple(rows))


def _ignore(_: str) -> None:
    pass


def _rows(
    spec: ForecastSpec, lab: Lab, replayed: ReplayModel, numbers: LabNumbers, tell: OnNote
) -> Iterator[ForecastRow]:
    measured: dict[str, list[ReplaySamples]] = {name: [] for name in spec.backends}
    where = f"{replayed.name} on {lab.spec.hosts} x {lab.spec.ranks_per_host} at {lab.spec.rate}"
    for number in range(spec.rounds):
        for name in spec.backends:
            tell(f"{where}, {PEERS[name].title}, round {number + 1} of {spec.rounds}")
            measured[name].append(_run(spec, lab, replayed, name))
    seconds = spec.compute_seconds(replayed)
    for name, parts in measured.items():
        yield ForecastRow(
            model=replayed.name,
            backend=name,
            hosts=lab.spec.hosts,
            ranks=lab.spec.ranks_per_host,
            rate=lab.spec.rate,
            forecast=forecast_step(replayed, seconds, numbers.hosts(name, lab.spec)).seconds,
            measured=ReplaySamples.merged(parts),
        )


def _run(spec: ForecastSpec, lab: Lab, replayed: ReplayModel, backend: str) -> ReplaySamples:
    """Run the steps on all ranks, and return the measured steps."""
    peer = PEERS[backend]
    num_steps = spec.warmup + spec.steps
    with tempfile.TemporaryDirectory(prefix="slipstream-forecast-") as folder:
        job = ReplayJob(
            model=replayed.name,
            strategy=peer.strategy,
            backend=peer.backend,
            wire=peer.wire,
            compute_seconds=spec.compute_seconds(replayed),
            steps=spec.steps,
            warmup=spec.warmup,
            busy=False,
            sparse=False,
            output=str(Path(folder) / "steps.json"),
        )
        lab.run(
            [sys.executable, "-m", "slipstream.bench.replay.rank", job.as_text()],
            environ=peer.environ,
            timeout_seconds=START_LIMIT_SECONDS + num_steps * STEP_LIMIT_SECONDS,
        )
        return ReplaySamples.read(job.output)
