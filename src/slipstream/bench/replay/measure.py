"""Replay of real models on simulated hosts, to measure how much communication slows a step down.

    rows = replay(ReplaySpec(models=("resnet50",)), peers(["gloo", "slipstream"]))

The peers are the compared libraries. The time of a step without communication (the compute-only
step) is measured in the same rounds as the libraries. The efficiency of a library is the time of a
compute-only step divided by the time of a step with the library. Nothing else should run on the
machine.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.bench.devices import (
    CPU,
    NCCL,
    NCCL_WAYS,
    check_device,
    nccl_environment,
    nccl_obstacle,
)
from slipstream.bench.limits import HostNetwork, Limit, StepSeconds, Wire, limit
from slipstream.bench.models import ReplayModel, model
from slipstream.bench.replay.job import Peer, ReplayJob, ReplaySamples
from slipstream.bench.replay.presets import Preset, preset
from slipstream.errors import UsageError
from slipstream.lab import Lab, LabSpec, open_lab
from slipstream.settings.variables import variables

COMPUTE_ONLY = Peer(name="compute-only", title="compute only", strategy="compute-only")

# Environment variables that Horovod's launcher would set for all ranks.
HOROVOD_VARIABLES = {
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
}

# Strategies of Slipstream: readable name, and the backend of torch.distributed for barriers.
OURS = {
    "within": ("slipstream, within steps", "slipstream"),
    "across": ("slipstream, across steps", "slipstream"),
    "hvd": ("slipstream, Horovod's API", "gloo"),
}

PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(name="gloo", title="DDP over gloo", strategy="ddp"),
        Peer(name="gloo-fp16", title="DDP over gloo, hook", strategy="ddp-fp16", wire="fp16"),
        Peer(name="slipstream", title="DDP over slipstream", strategy="ddp", backend="slipstream"),
        *(
            Peer(
                name=f"slipstream-{codec}",
                title="DDP over slipstream, hook",
                strategy=f"hook-{codec}",
                wire=codec,
                backend="slipstream",
            )
            for codec in ("fp16", "int8")
        ),
        *(
            Peer(
                name=strategy if codec == "fp32" else f"{strategy}-{codec}",
                title=title,
                strategy=strategy if codec == "fp32" else f"{strategy}-{codec}",
                wire=codec,
                backend=backend,
            )
            for strategy, (title, backend) in OURS.items()
            for codec in ("fp32", "fp16", "int8")
        ),
        # This peer does not tune itself, which shows the cost and the gain of tuning.
        Peer(
            name="across-untuned",
            title="slipstream, across steps, untuned",
            strategy="across",
            backend="slipstream",
            environ={variables()["deterministic"].name: "1"},
            is_default=False,
        ),
        Peer(
            name="horovod",
            title="Horovod over gloo",
            strategy="horovod",
            environ=HOROVOD_VARIABLES,
        ),
        Peer(
            name="horovod-fp16",
            title="Horovod over gloo, fp16",
            strategy="horovod-fp16",
            wire="fp16",
            environ=HOROVOD_VARIABLES,
        ),
        *(
            Peer(name=way, title=f"DDP over {way}", strategy="ddp", backend=way)
            for way in NCCL_WAYS
        ),
        Peer(
            name="nccl-fp16",
            title="DDP over nccl, hook",
            strategy="ddp-fp16",
            wire="fp16",
            backend=NCCL,
        ),
    )
}

# Time limits in seconds, after which a run is regarded as hanging.
STEP_LIMIT_SECONDS = 120.0
START_LIMIT_SECONDS = 120.0

OnRun = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaySpec:
    """Settings of a replay.

    Args:
        models: Names of the replayed models.
        preset: Name of the published training set-up that defines the ratio of compute to
            communication.
        hosts: Number of simulated hosts, at least 2; one rank runs on each.
        rate: Bit rate of each host's link, such as 1gbit.
        steps: Number of measured steps in each round, at least 1.
        warmup: Number of steps before the measured steps in each round, at least 3, because DDP
            forms its buckets anew in the second step.
        rounds: Number of rounds, at least 1; each round runs every compared library once.
        busy: Whether the ranks multiply matrices instead of sleeping (default False).
        sparse: Whether embeddings that the model marks as sparse have sparse gradients (default
            False).
        device: PyTorch's name of the device that has the gradients and computes, such as "cuda"
            (default "cpu": compute is simulated).
        relay: Whether the links of the lab are a relay even where namespaces can be made (default
            False).
    """

    models: tuple[str, ...]
    preset: str = "v100-4x8"
    hosts: int = 4
    rate: str = "1gbit"
    steps: int = 4
    warmup: int = 3
    rounds: int = 2
    busy: bool = False
    sparse: bool = False
    device: str = CPU
    relay: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        for name, least in (("hosts", 2), ("steps", 1), ("warmup", 3), ("rounds", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} is {getattr(self, name)}; allowed: at least {least}")
        if self.sparse and self.device != CPU:
            raise UsageError(
                f"sparse is given, and the device is {self.device}; allowed: cpu, because gradients"
                " of a device are dense"
            )
        preset(self.preset)
        for name in self.models:
            model(name)

    def lab(self) -> LabSpec:
        """Return the description of the simulated hosts and their links."""
        return LabSpec(hosts=self.hosts, rate=self.rate)

    def missing(self, compared: Sequence[Peer]) -> dict[str, str]:
        """Return the titles of the peers that cannot run on the device, each with the reason."""
        reasons = {peer.title: self._obstacle(peer) for peer in compared}
        return {title: reason for title, reason in reasons.items() if reason}

    def _obstacle(self, peer: Peer) -> str:
        if peer.backend in NCCL_WAYS:
            return nccl_obstacle(peer.backend, self.device, 1)
        if self.device != CPU and peer.strategy.startswith(("hvd", "horovod")):
            return "Horovod's API is measured on tensors of the CPU only"
        return ""

    def network(self) -> HostNetwork:
        """Return the simulated network, which determines the shortest possible step times."""
        return HostNetwork(hosts=self.hosts, bits_per_second=self.lab().link_rates[0])

    def published(self) -> Preset:
        """Return the published training set-up that `preset` names."""
        return preset(self.preset)

    def compute_seconds(self, replayed: ReplayModel) -> float:
        """Return the seconds of the forward and backward passes together.

        The published time is multiplied by the factor by which the simulated network is slower.
        """
        published = self.published()
        return published.step_seconds(replayed) * published.slowdown(self.network())


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayRow:
    """Step times of one compared library with one model.

    Args:
        model: Name of the model.
        peer: Readable name of the compared library; empty if nothing was measured.
        wire: Precision of gradients between hosts.
        steps: Times of the measured steps; None if nothing was measured.
        limit: Shortest possible times of a step with this precision, computed from the time of a
            compute-only step.
        is_relayed: Whether the links of the lab were a relay (default False).
    """

    model: str
    peer: str
    wire: Wire
    steps: ReplaySamples | None
    limit: Limit
    is_relayed: bool = False

    @property
    def efficiency(self) -> float | None:
        """Time of a compute-only step divided by the measured time; None without measured steps."""
        return None if self.steps is None else self.limit.compute_only / self.steps.median


def peers(names: Sequence[str]) -> tuple[Peer, ...]:
    """Return the compared libraries with the given names from `PEERS`.

    Raises:
        UsageError: a name is unknown.
    """
    for name in names:
        if name not in PEERS:
            raise UsageError(f"the peer is {name!r}; allowed: {', '.join(PEERS)}")
    return tuple(PEERS[name] for name in names)


def default_peers(spec: ReplaySpec) -> tuple[Peer, ...]:
    """Return the default libraries that can run on this machine with these settings.

    With sparse gradients, only DDP can run: hooks and Horovod's optimizer do not accept them.
    Horovod is left out if it is not installed.

    Args:
        spec: Settings of the replay.
    """
    defaults = [peer for peer in PEERS.values() if peer.is_default]
    suitable = [peer for peer in defaults if not spec.sparse or peer.strategy == "ddp"]
    if spec.device == CPU:
        suitable = [peer for peer in suitable if peer.backend not in NCCL_WAYS]
    return tuple(
        peer for peer in suitable if not peer.strategy.startswith("horovod") or has_horovod()
    )


def has_horovod() -> bool:
    """Return whether Horovod is installed."""
    return importlib.util.find_spec("horovod") is not None


def limits(spec: ReplaySpec, wires: Sequence[Wire] = ("fp32", "fp16", "int8")) -> list[ReplayRow]:
    """Return the shortest possible step times, computed without a run and without an optimizer.

    Args:
        spec: Settings of the replay.
        wires: Precisions of gradients between hosts (default: all).
    """
    return [
        ReplayRow(
            model=replayed.name,
            peer="",
            wire=wire,
            steps=None,
            limit=_limit(spec, replayed, StepSeconds(compute=spec.compute_seconds(replayed)), wire),
        )
        for replayed in map(model, spec.models)
        for wire in wires
    ]


def replay(
    spec: ReplaySpec, compared: Sequence[Peer], on_run: OnRun | None = None
) -> list[ReplayRow]:
    """Replay models with each compared library, which takes minutes for each model.

    Args:
        spec: Settings of the replay.
        compared: Compared libraries, in the order of the results.
        on_run: Function that receives the name of the next run (default None).

    Returns:
        The results of each model: first the compute-only step, then one result per library.

    Raises:
        UnsupportedError: hosts cannot be simulated, for example without root or iproute2.
        SlipstreamError: a rank failed.
    """
    check_device(spec.device)
    rows: list[ReplayRow] = []
    missing = spec.missing(compared)
    present = [peer for peer in compared if peer.title not in missing]
    with open_lab(spec.lab(), relay=spec.relay) as lab:
        for replayed in map(model, spec.models):
            rows += _replay_model(lab, spec, replayed, present, on_run or (lambda _: None))
    return rows


def _replay_model(
    lab: Lab, spec: ReplaySpec, replayed: ReplayModel, compared: Sequence[Peer], on_run: OnRun
) -> list[ReplayRow]:
    contenders = [COMPUTE_ONLY, *compared]
    measured: dict[str, list[ReplaySamples]] = {peer.name: [] for peer in contenders}
    for round_number in range(spec.rounds):
        for peer in contenders:
            on_run(f"{replayed.name}, {peer.title}, round {round_number + 1} of {spec.rounds}")
            measured[peer.name].append(_run(lab, spec, replayed, peer))
    merged = {name: ReplaySamples.merged(parts) for name, parts in measured.items()}
    compute = spec.compute_seconds(replayed)
    alone = merged[COMPUTE_ONLY.name].median
    step = StepSeconds(compute=min(compute, alone), optimizer=max(0.0, alone - compute))
    return [
        ReplayRow(
            model=replayed.name,
            peer=peer.title,
            wire=peer.wire,
            steps=merged[peer.name],
            limit=_limit(spec, replayed, step, peer.wire),
            is_relayed=lab.is_relayed,
        )
        for peer in contenders
    ]


def _limit(spec: ReplaySpec, replayed: ReplayModel, step: StepSeconds, wire: Wire) -> Limit:
    return limit(replayed, step, spec.network(), wire, sparse=spec.sparse)


def _run(lab: Lab, spec: ReplaySpec, replayed: ReplayModel, peer: Peer) -> ReplaySamples:
    """Run the steps on all ranks, and return the times of the measured steps."""
    compute_seconds = spec.compute_seconds(replayed)
    num_steps = spec.warmup + spec.steps
    with tempfile.TemporaryDirectory(prefix="slipstream-replay-") as folder:
        job = ReplayJob(
            model=replayed.name,
            strategy=peer.strategy,
            backend=peer.backend,
            wire=peer.wire,
            compute_seconds=compute_seconds,
            steps=spec.steps,
            warmup=spec.warmup,
            busy=spec.busy,
            sparse=spec.sparse,
            output=str(Path(folder) / "steps.json"),
            device=spec.device,
        )
        environ = {**peer.environ, "HOROVOD_GLOO_IFACE": lab.interface}
        if peer.backend in NCCL_WAYS:
            environ |= nccl_environment(peer.backend)
        lab.run(
            [sys.executable, "-m", "slipstream.bench.replay.rank", job.as_text()],
            environ=environ,
            timeout_seconds=START_LIMIT_SECONDS + num_steps * STEP_LIMIT_SECONDS,
        )
        return ReplaySamples.read(job.output)
