"""Measures collectives: ours, peers and yardsticks by turns, in a lab or on this machine.

    report = measure(CommSpec(lab=LabSpec(hosts=4), sizes=(100_000_000,)))

Contenders that are backends of torch.distributed share the processes and take turns. MPI, and
Slipstream confined to one ring, have a run of their own right after, in the same lab. Nothing else
should run on the machine.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from slipstream.bench.comm import limits as comm_limits
from slipstream.bench.comm import start as comm_start
from slipstream.bench.comm.cross_traffic import cross_traffic
from slipstream.bench.comm.job import COPY_AND_ADD, PING_PONG, CommJob, CommSamples
from slipstream.errors import UsageError
from slipstream.lab import Lab, LabCounters, LabSpec
from slipstream.lab.rates import parse_rate
from slipstream.settings.variables import variables

PEERS = ("gloo", "mpi", "nccl", "ring")
RING = "slipstream ring"

# Headers and acknowledgements of smaller buffers are more than a hundredth of them.
COUNTED_FROM = 1_000_000

OnNote = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommSpec:
    """Settings of a measurement of collectives.

    Args:
        collectives: names of `limits.COLLECTIVES`.
        sizes: bytes of the larger buffer of a rank, at least 4.
        lab: Lab of the measurement; None for this machine.
        local: ranks on this machine where there is no lab, at least 2.
        codecs: codecs of Slipstream's allreduce, names of `limits.CODEC_SHARE`.
        peers: names of `PEERS`; those that are not there are left out with a note. `ring` is
            Slipstream with the flat ring, whatever the topology.
        rounds: Number of rounds, at least 1; every contender has one turn in each.
        warmup: calls of each contender before, at least 0.
        cross_traffic: rate of a connection from every host to the next meanwhile, such as 500mbit;
            "" for none.
    """

    collectives: tuple[str, ...] = ("allreduce",)
    sizes: tuple[int, ...] = (4_000, 64_000, 1_000_000, 16_000_000, 100_000_000)
    lab: LabSpec | None = None
    local: int = 0
    codecs: tuple[str, ...] = ("none",)
    peers: tuple[str, ...] = ("gloo", "mpi", "nccl")
    rounds: int = 5
    warmup: int = 2
    cross_traffic: str = ""

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        _check_names("collective", self.collectives, comm_limits.COLLECTIVES)
        _check_names("codec", self.codecs, tuple(comm_limits.CODEC_SHARE))
        _check_names("peer", self.peers, PEERS)
        for name, value, least in (
            ("rounds", self.rounds, 1),
            ("warmup", self.warmup, 0),
            ("size", min(self.sizes, default=0), 4),
            ("number of ranks", self.ranks, 2),
        ):
            if value < least:
                raise UsageError(f"the {name} is {value}; allowed: {least} and more")
        if self.lab is not None and self.local:
            raise UsageError("lab and local are both given; give one of them")
        if self.cross_traffic:
            parse_rate(self.cross_traffic, "cross_traffic")
            if not self.has_network:
                raise UsageError("cross_traffic is given; it needs a lab of at least two hosts")

    @property
    def ranks(self) -> int:
        """Number of ranks of the measurement."""
        return self.lab.world_size if self.lab is not None else self.local

    @property
    def has_network(self) -> bool:
        """Whether there are two hosts at least."""
        return self.lab is not None and self.lab.hosts > 1

    @property
    def counted_from(self) -> int:
        """Size from which the bytes on the links are counted; 0 if others send too."""
        return COUNTED_FROM if self.has_network and not self.cross_traffic else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CommRow:
    """Result of one contender with one size.

    Args:
        samples: Measured times.
        codec: Codec of the data between hosts.
        limit_seconds: Lower bound of the time of any algorithm on these links; None on one host.
        least_host_bytes: Lower bound of the bytes on the busiest host's link; None on one host.
        least_uplink_bytes: Lower bound of the bytes on the busiest uplink; None with one rack.
        host_bytes: payload that passed the busiest host's link in one direction; None if it was
            not counted.
        uplink_bytes: payload that passed the busiest uplink in one direction.
    """

    samples: CommSamples
    codec: str = "none"
    limit_seconds: float | None = None
    least_host_bytes: float | None = None
    least_uplink_bytes: float | None = None
    host_bytes: int | None = None
    uplink_bytes: int | None = None

    @property
    def limit_share(self) -> float | None:
        """Time of the limit divided by the measured time; None without a limit."""
        return None if self.limit_seconds is None else self.limit_seconds / self.samples.median

    def bus_bandwidth(self, ranks: int) -> float:
        """Return bytes per second, comparable with a link's rate for any number of ranks."""
        factor = comm_limits.bus_factor(self.samples.collective, ranks)
        return factor * self.samples.size / self.samples.median


@dataclass(frozen=True, kw_only=True, slots=True)
class CommReport:
    """Results of a measurement.

    Args:
        spec: Settings of the measurement.
        rows: a contender's results, by collective and size.
        notes: Sentences about contenders that were left out, with the reason.
    """

    spec: CommSpec
    rows: tuple[CommRow, ...]
    notes: tuple[str, ...]

    def row(self, contender: str, size: int, collective: str = "allreduce") -> CommRow:
        """Return one row.

        Raises:
            KeyError: it was not measured.
        """
        for each in self.rows:
            samples = each.samples
            if (samples.contender, samples.size, samples.collective) == (
                contender,
                size,
                collective,
            ):
                return each
        raise KeyError(f"{collective} of {size} bytes over {contender}")

    def times_faster(
        self, contender: str, other: str, size: int, collective: str = "allreduce"
    ) -> float:
        """Return the other contender's median time divided by this one's."""
        times = [self.row(each, size, collective).samples.median for each in (other, contender)]
        return times[0] / times[1]


def measure(spec: CommSpec, on_note: OnNote | None = None) -> CommReport:
    """Run the measurement, and block for seconds to minutes, as the sizes and rates are.

    Args:
        spec: Settings of the measurement.
        on_note: Callback that receives the name of the next measurement.

    Raises:
        UnsupportedError: there is no PyTorch, or the lab cannot be made.
        SlipstreamError: a rank failed.
    """
    comm_start.check_torch()
    tell = on_note or _ignore
    peers, notes = comm_start.present(spec.peers, spec.ranks, is_lab=spec.lab is not None)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="slipstream-comm-"))
        lab = stack.enter_context(Lab(spec.lab)) if spec.lab is not None else None
        if lab is not None and spec.cross_traffic:
            stack.enter_context(cross_traffic(lab, spec.cross_traffic))
        rows = _run(spec, lab, _job(spec, lab, peers, folder), tell)
        if "ring" in peers:
            rows += _run_ring(spec, lab, folder, tell)
        if "mpi" in peers:
            samples = comm_start.run_mpi(_alone(spec, "mpi", folder), spec.ranks, lab, tell)
            rows += [_row(spec, each, {}) for each in samples]
    return CommReport(spec=spec, rows=tuple(_sorted(rows)), notes=tuple(notes))


def _job(spec: CommSpec, lab: Lab | None, peers: Sequence[str], folder: str) -> CommJob:
    contenders = [each for each in ("gloo", "nccl") if each in peers]
    contenders += [
        "slipstream" if codec == "none" else f"slipstream {codec}" for codec in spec.codecs
    ]
    if not spec.has_network:
        contenders.append(COPY_AND_ADD)
    job = _alone(spec, "together", folder)
    if lab is None or not spec.has_network:
        return dataclasses.replace(job, contenders=tuple(contenders))
    return dataclasses.replace(
        job,
        contenders=(*contenders, PING_PONG),
        ping_ranks=(0, lab.spec.ranks_per_host),
        ping_address=lab.addresses[0],
        counted_from=spec.counted_from,
    )


def _alone(spec: CommSpec, name: str, folder: str) -> CommJob:
    """Return the job of one contender, in a folder of its own."""
    own = Path(folder) / name
    own.mkdir()
    return CommJob(
        collectives=spec.collectives,
        sizes=spec.sizes,
        contenders=(name,),
        rounds=spec.rounds,
        warmup=spec.warmup,
        folder=str(own),
    )


def _run(
    spec: CommSpec,
    lab: Lab | None,
    job: CommJob,
    on_note: OnNote,
    environ: Mapping[str, str] | None = None,
) -> list[CommRow]:
    if lab is None:
        samples = comm_start.run_here(job, spec.ranks, environ or {}, on_note)
        return [_row(spec, each, {}) for each in samples]
    samples, readings = comm_start.run_in_lab(lab, job, environ or {}, on_note)
    return [_row(spec, each, readings) for each in samples]


def _run_ring(spec: CommSpec, lab: Lab | None, folder: str, on_note: OnNote) -> list[CommRow]:
    job = dataclasses.replace(
        _alone(spec, "ring", folder),
        contenders=("slipstream",),
        counted_from=spec.counted_from,
    )
    rows = _run(spec, lab, job, on_note, {variables()["algorithm"].name: "ring"})
    return [
        dataclasses.replace(row, samples=dataclasses.replace(row.samples, contender=RING))
        for row in rows
    ]


def _row(spec: CommSpec, samples: CommSamples, readings: Mapping[int, LabCounters]) -> CommRow:
    codec = samples.contender.removeprefix("slipstream").strip() or "none"
    lab = spec.lab
    if samples.contender in (PING_PONG, COPY_AND_ADD):
        return CommRow(samples=samples)
    codec = codec if codec in comm_limits.CODEC_SHARE else "none"
    if lab is None or not spec.has_network:
        return CommRow(samples=samples, codec=codec)
    what = (lab, samples.collective, samples.size, codec)
    row = CommRow(
        samples=samples,
        codec=codec,
        limit_seconds=comm_limits.limit_seconds(*what),
        least_host_bytes=comm_limits.host_bytes(*what),
        least_uplink_bytes=comm_limits.uplink_bytes(*what) if lab.racks > 1 else None,
    )
    if not samples.readings:
        return row
    before, after = (readings[number] for number in samples.readings)
    passed = after.since(before)
    busiest = [
        max(
            (max(each.sent_payload_bytes, each.received_payload_bytes) for each in links), default=0
        )
        for links in (passed.hosts, passed.uplinks)
    ]
    return dataclasses.replace(
        row, host_bytes=busiest[0], uplink_bytes=busiest[1] if passed.uplinks else None
    )


def _sorted(rows: Sequence[CommRow]) -> list[CommRow]:
    """Return rows by collective and size, yardsticks after contenders."""
    groups: dict[tuple[str, int], list[CommRow]] = {}
    for row in rows:
        groups.setdefault((row.samples.collective, row.samples.size), []).append(row)
    return [
        row
        for group in groups.values()
        for row in sorted(group, key=lambda row: row.samples.contender in (PING_PONG, COPY_AND_ADD))
    ]


def _ignore(_: str) -> None:
    pass


def _check_names(kind: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    if not names and kind != "peer":
        raise UsageError(f"there is no {kind}; allowed: {', '.join(allowed)}")
    for name in names:
        if name not in allowed:
            raise UsageError(f"the {kind} is {name!r}; allowed: {', '.join(allowed)}")
