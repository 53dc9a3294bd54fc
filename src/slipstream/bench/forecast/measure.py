"""Comparison of forecasts with training steps on the emulated hosts of `slipstream.lab`.

    report = judge(ForecastSpec(models=("resnet50",)))
    report.mean_error

In these steps, layers sleep instead of computing, but real gradients are exchanged. The speed of
the lab's links and of this machine's processors is measured once, by separate allreduces and
optimizer updates. Each step is forecast from the measured speeds, and is then measured itself.
Nothing else should run on the machine.
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

# Compute times are taken from this preset of the replay. They are multiplied by the same factor for
# all link rates, so that compute hides little, much or all of the communication.
PRESET = "v100-4x8"


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastSpec:
    """Settings of a comparison of forecasts with measurements.

    Args:
        models: Names of the models, from `slipstream.bench.models`; their layers sleep instead of
            computing.
        rates: Bit rates of the hosts' links, such as 1gbit; each lab has one of the rates.
        hosts: Numbers of hosts, each at least 2; each lab has one of the numbers.
        ranks: Number of ranks on each host, at least 1. More than one rank on a host needs
            Slipstream's backend, because gloo does not distinguish ranks of one host from ranks of
            different hosts.
        slower: Factor by which compute takes longer than published (default 30). With 30, four
            hosts with links of 1 Gbit/s correspond to the published setting.
        backends: Names of DDP's backends, from `lab.compare.BACKENDS`.
        steps: Number of measured steps in each round, at least 1.
        warmup: Number of steps before the measured steps in each round, at least 3, because DDP
            forms its buckets anew in the second step.
        rounds: Number of rounds, at least 1; every backend has one turn in each.
        quick: Whether to measure the lab quickly and less accurately, to try the command (default
            False).
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
        """Check the values."""
        for name, value, least in (
            ("hosts", min(self.hosts, default=0), 2),
            ("ranks", self.ranks, 1),
            ("steps", self.steps, 1),
            ("warmup", self.warmup, 3),
            ("rounds", self.rounds, 1),
        ):
            if value < least:
                raise UsageError(f"{name} is {value}; allowed: at least {least}")
        for name in self.backends:
            if name not in BACKENDS:
                raise UsageError(f"the backend is {name!r}; allowed: {', '.join(BACKENDS)}")
        if self.ranks > 1 and "gloo" in self.backends:
            raise UsageError(
                f"ranks is {self.ranks}, but the backend gloo does not distinguish hosts; allowed:"
                " slipstream alone"
            )
        if not self.slower > 0:
            raise UsageError(f"slower is {self.slower:g}; allowed: numbers above 0")
        for rate in self.rates:
            parse_rate(rate)
        for name in self.models:
            model(name)

    def labs(self) -> Iterator[LabSpec]:
        """Yield the description of a lab for each number of hosts and each link rate."""
        for hosts in self.hosts:
            for rate in self.rates:
                yield LabSpec(hosts=hosts, ranks_per_host=self.ranks, rate=rate)

    def compute_seconds(self, replayed: ReplayModel) -> float:
        """Return for how many seconds the forward and backward passes of a step sleep in total.

        Args:
            replayed: Model whose layers sleep instead of computing.
        """
        return preset(PRESET).step_seconds(replayed) * self.slower


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastRow:
    """Forecast and measurement of one step.

    Args:
        model: Name of the model.
        backend: Backend of DDP.
        hosts: Number of lab hosts.
        ranks: Number of ranks on each host.
        rate: Bit rate of each host's link.
        forecast: Forecast time of a step in seconds.
        measured: Measured times of the step.
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
        """Relative error of the forecast; positive if the forecast is too high."""
        return self.forecast / self.measured.median - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastReport:
    """All compared steps, and the measured performance that their forecasts are based on.

    Args:
        spec: Settings of the measurement.
        numbers: Performance of the lab, measured before the steps.
        rows: Forecast and measurement of each step, at least one.
    """

    spec: ForecastSpec
    numbers: LabNumbers
    rows: tuple[ForecastRow, ...]

    @property
    def mean_error(self) -> float:
        """Mean of the forecasts' absolute relative errors."""
        return mean_error(self.rows)

    @property
    def high_error(self) -> float:
        """The 90th percentile of the forecasts' absolute relative errors."""
        return high_error(self.rows)

    def of(self, backend: str) -> tuple[ForecastRow, ...]:
        """Return the forecasts and measurements with one backend."""
        return tuple(row for row in self.rows if row.backend == backend)


def mean_error(rows: Sequence[ForecastRow]) -> float:
    """Return the mean of the forecasts' absolute relative errors.

    Args:
        rows: Forecasts and measurements of steps, at least one.
    """
    return statistics.fmean(abs(row.error) for row in rows)


def high_error(rows: Sequence[ForecastRow]) -> float:
    """Return the 90th percentile of the forecasts' absolute relative errors.

    Args:
        rows: Forecasts and measurements of steps, at least one.
    """
    sizes = sorted(abs(row.error) for row in rows)
    return sizes[-(-9 * len(sizes) // 10) - 1]


def judge(spec: ForecastSpec, on_note: OnNote | None = None) -> ForecastReport:
    """Measure the lab's speed, and then forecast and measure each step; this takes many minutes.

    Args:
        spec: Settings of the comparison.
        on_note: Function that receives the name of the next measurement (default None).

    Raises:
        UnsupportedError: the lab, which needs root and iproute2, cannot be made.
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
    title = f"{replayed.name} on {lab.spec.hosts} x {lab.spec.ranks_per_host} at {lab.spec.rate}"
    for number in range(spec.rounds):
        for name in spec.backends:
            tell(f"{title}, {PEERS[name].title}, round {number + 1} of {spec.rounds}")
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
    """Run the steps on all ranks, and return the measured times of the steps."""
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
