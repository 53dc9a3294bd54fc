"""Measurement of Slipstream's collectives and other implementations, in a lab or on this machine.

    report = measure(CommSpec(lab=LabSpec(hosts=4), sizes=(100_000_000,)))

Contenders that are backends of torch.distributed share their processes and take turns. MPI, and
Slipstream restricted to one ring, run afterwards in separate processes in the same lab. Nothing
else should run on the machine.
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
from slipstream.bench.comm.job import (
    COPY_AND_ADD,
    HOST_COPIES,
    PING_PONG,
    YARDSTICKS,
    CommJob,
    CommSamples,
)
from slipstream.bench.devices import (
    CPU,
    NCCL,
    NCCL_PLUGIN,
    NCCL_TUNED,
    check_device,
    nccl_environment,
)
from slipstream.errors import UnsupportedError, UsageError
from slipstream.lab import Lab, LabCounters, LabSpec, open_lab
from slipstream.lab.rates import parse_rate
from slipstream.settings.variables import variables

PEERS = ("gloo", "mpi", "nccl", "ring", NCCL_TUNED, NCCL_PLUGIN)
CPU_PEERS = ("gloo", "mpi", "nccl")
DEVICE_PEERS = ("gloo", "nccl", NCCL_TUNED, NCCL_PLUGIN)
RING = "slipstream ring"

# For smaller buffers, headers and acknowledgements are more than 1 % of the bytes.
COUNTED_FROM = 1_000_000

OnNote = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommSpec:
    """Settings of a measurement of collectives.

    Args:
        collectives: Names from `limits.COLLECTIVES` (default: allreduce only).
        sizes: Sizes in bytes of the larger of a rank's two buffers, at least 4.
        lab: Emulated hosts and links of the measurement (default None: the ranks run on this
            machine).
        local: Number of ranks on this machine without a lab, at least 2.
        codecs: Codecs of Slipstream's allreduce, from `limits.CODEC_SHARE` (default "none" only).
        peers: Names of the implementations that are compared with Slipstream, from `PEERS`. An
            implementation that is not installed is left out, and the report has a note about it.
            "ring" is Slipstream with the flat ring on every topology.
        rounds: Number of rounds, at least 1; every contender has one turn in each.
        warmup: Number of calls of each contender before the timed calls, at least 0.
        cross_traffic: Bit rate of a TCP connection from every host to the next during the
            measurement, such as 500mbit (default "": no cross traffic).
        device: PyTorch's name of the device that has the tensors, such as "cuda" (default "cpu").
        relay: Whether the links of the lab are a relay even where namespaces can be made (default
            False).
    """

    collectives: tuple[str, ...] = ("allreduce",)
    sizes: tuple[int, ...] = (4_000, 64_000, 1_000_000, 16_000_000, 100_000_000)
    lab: LabSpec | None = None
    local: int = 0
    codecs: tuple[str, ...] = ("none",)
    peers: tuple[str, ...] = CPU_PEERS
    rounds: int = 5
    warmup: int = 2
    cross_traffic: str = ""
    device: str = CPU
    relay: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        _check_names("collective", self.collectives, comm_limits.COLLECTIVES)
        _check_names("codec", self.codecs, tuple(comm_limits.CODEC_SHARE))
        _check_names("peer", self.peers, PEERS)
        if not self.sizes:
            raise UsageError("sizes is empty; allowed: one or more sizes, such as 4k,1m")
        for name, value, least in (
            ("rounds", self.rounds, 1),
            ("warmup", self.warmup, 0),
            ("size", min(self.sizes), 4),
            ("number of ranks", self.ranks, 2),
        ):
            if value < least:
                raise UsageError(f"{name} is {value}; allowed: at least {least}")
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
        """Whether there are at least two hosts."""
        return self.lab is not None and self.lab.hosts > 1

    @property
    def counted_from(self) -> int:
        """Smallest buffer size in bytes for which the traffic on the links is counted; 0: never."""
        return COUNTED_FROM if self.has_network and not self.cross_traffic else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CommRow:
    """Result of one contender for one collective and buffer size.

    Args:
        samples: Measured times.
        codec: Codec that encodes the data sent between hosts (default "none").
        limit_seconds: Lower bound of the seconds that any algorithm needs on the lab's links; None
            on one host.
        least_host_bytes: Lower bound of the bytes that the busiest host's link carries in one
            direction; None on one host.
        least_uplink_bytes: Lower bound of the bytes that the busiest rack's uplink carries in one
            direction; None with one rack.
        host_bytes: Payload bytes that the busiest host's link carried in one direction; None if
            they were not counted.
        uplink_bytes: Payload bytes that the busiest rack's uplink carried in one direction; None if
            they were not counted.
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
        """`limit_seconds` divided by the median measured time; None without a limit."""
        return None if self.limit_seconds is None else self.limit_seconds / self.samples.median

    def bus_bandwidth(self, ranks: int) -> float:
        """Return the bus bandwidth in bytes per second, which is comparable with a link's rate."""
        factor = comm_limits.bus_factor(self.samples.collective, ranks)
        return factor * self.samples.size / self.samples.median


@dataclass(frozen=True, kw_only=True, slots=True)
class CommReport:
    """Results of a measurement.

    Args:
        spec: Settings of the measurement.
        rows: Results of the contenders, by collective and size.
        missing: Peers that were left out, each with the reason.
        is_relayed: Whether the links of the lab were a relay (default False).
    """

    spec: CommSpec
    rows: tuple[CommRow, ...]
    missing: Mapping[str, str]
    is_relayed: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that say which peers were left out, and why."""
        return tuple(f"{peer} is left out: {reason}" for peer, reason in self.missing.items())

    def row(self, contender: str, size: int, collective: str = "allreduce") -> CommRow:
        """Return the result of a contender for a buffer size in bytes and a collective.

        Raises:
            KeyError: there is no result of this contender, size and collective.
        """
        for row in self.rows:
            samples = row.samples
            if (samples.contender, samples.size, samples.collective) == (
                contender,
                size,
                collective,
            ):
                return row
        raise KeyError(f"{collective} of {size} bytes over {contender}")

    def times_faster(
        self, contender: str, other: str, size: int, collective: str = "allreduce"
    ) -> float:
        """Return the median time of `other` divided by the median time of `contender`."""
        slower, faster = (
            self.row(name, size, collective).samples.median for name in (other, contender)
        )
        return slower / faster


def measure(spec: CommSpec, on_note: OnNote | None = None) -> CommReport:
    """Run the measurement, which takes seconds to minutes.

    Args:
        spec: Settings of the measurement.
        on_note: Function that receives the name of the next measurement (default None).

    Raises:
        UnsupportedError: PyTorch is not installed, or the lab cannot be made.
        SlipstreamError: a rank failed.
    """
    comm_start.check_torch()
    check_device(spec.device)
    tell = on_note or _ignore
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="slipstream-comm-"))
        lab = None
        if spec.lab is not None:
            lab = stack.enter_context(open_lab(spec.lab, relay=spec.relay))
            _check_traffic(spec, lab)
        missing = comm_start.obstacles(spec.peers, spec.ranks, lab, spec.device)
        peers = [peer for peer in spec.peers if peer not in missing]
        if lab is not None and spec.cross_traffic:
            stack.enter_context(cross_traffic(lab, spec.cross_traffic))
        environ: Mapping[str, str] = {} if spec.device == CPU else nccl_environment(NCCL)
        rows = _run(spec, lab, _job(spec, lab, peers, folder), tell, environ)
        if "ring" in peers:
            rows += _run_ring(spec, lab, folder, tell)
        for way in (NCCL_TUNED, NCCL_PLUGIN):
            if way in peers:
                rows += _run(spec, lab, _alone(spec, way, folder), tell, nccl_environment(way))
        if "mpi" in peers:
            samples = comm_start.run_mpi(_alone(spec, "mpi", folder), spec.ranks, lab, tell)
            rows += [_row(spec, sample, {}) for sample in samples]
    return CommReport(
        spec=spec,
        rows=tuple(_sorted(rows)),
        missing=missing,
        is_relayed=lab is not None and lab.is_relayed,
    )


def _check_traffic(spec: CommSpec, lab: Lab) -> None:
    if spec.cross_traffic and lab.is_relayed:
        raise UnsupportedError(
            "cross_traffic is given, and this lab has a relay, whose hosts share an address; run"
            " the command as root, so that the hosts are network namespaces"
        )


def _job(spec: CommSpec, lab: Lab | None, peers: Sequence[str], folder: str) -> CommJob:
    contenders = [name for name in ("gloo", "nccl") if name in peers]
    contenders += [
        "slipstream" if codec == "none" else f"slipstream {codec}" for codec in spec.codecs
    ]
    if spec.device != CPU:
        contenders.append(HOST_COPIES)
    elif not spec.has_network:
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
    """Return the instructions for one contender, and make a new subfolder for its files."""
    subfolder = Path(folder) / name
    subfolder.mkdir()
    return CommJob(
        collectives=spec.collectives,
        sizes=spec.sizes,
        contenders=(name,),
        rounds=spec.rounds,
        warmup=spec.warmup,
        folder=str(subfolder),
        device=spec.device,
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
        return [_row(spec, sample, {}) for sample in samples]
    samples, readings = comm_start.run_in_lab(lab, job, environ or {}, on_note)
    return [_row(spec, sample, readings) for sample in samples]


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
    if samples.contender in YARDSTICKS:
        return CommRow(samples=samples)
    codec = codec if codec in comm_limits.CODEC_SHARE else "none"
    if lab is None or not spec.has_network:
        return CommRow(samples=samples, codec=codec)
    setting = (lab, samples.collective, samples.size, codec)
    row = CommRow(
        samples=samples,
        codec=codec,
        limit_seconds=comm_limits.limit_seconds(*setting),
        least_host_bytes=comm_limits.host_bytes(*setting),
        least_uplink_bytes=comm_limits.uplink_bytes(*setting) if lab.racks > 1 else None,
    )
    if not samples.readings:
        return row
    before, after = (readings[number] for number in samples.readings)
    traffic = after.since(before)
    host_bytes, uplink_bytes = (
        max(
            (max(link.sent_payload_bytes, link.received_payload_bytes) for link in links), default=0
        )
        for links in (traffic.hosts, traffic.uplinks)
    )
    return dataclasses.replace(
        row, host_bytes=host_bytes, uplink_bytes=uplink_bytes if traffic.uplinks else None
    )


def _sorted(rows: Sequence[CommRow]) -> list[CommRow]:
    """Return the results by collective and size; reference measurements follow the collectives."""
    groups: dict[tuple[str, int], list[CommRow]] = {}
    for row in rows:
        groups.setdefault((row.samples.collective, row.samples.size), []).append(row)
    return [
        row
        for group in groups.values()
        for row in sorted(group, key=lambda row: row.samples.contender in YARDSTICKS)
    ]


def _ignore(_: str) -> None:
    pass


def _check_names(kind: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    if not names and kind != "peer":
        raise UsageError(f"no {kind} is given; allowed: {', '.join(allowed)}")
    for name in names:
        if name not in allowed:
            raise UsageError(f"the {kind} is {name!r}; allowed: {', '.join(allowed)}")
