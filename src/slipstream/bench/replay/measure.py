"""Replays real models on lab hosts: how much of a step is lost to communication, with whom.

    rows = replay(ReplaySpec(models=("resnet50",)), peers(["gloo", "slipstream"]))

Each model has its compute-only step measured in the same rounds as the peers; efficiency is that
step divided by the peer's. Nothing else should run on the machine.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.bench.limits import HostNetwork, Limit, StepSeconds, Wire, limit
from slipstream.bench.models import ReplayModel, model
from slipstream.bench.replay.job import Peer, ReplayJob, ReplaySamples
from slipstream.bench.replay.presets import Preset, preset
from slipstream.errors import UsageError
from slipstream.lab import Lab, LabSpec
from slipstream.lab.network import INTERFACE
from slipstream.settings.variables import variables

COMPUTE_ONLY = Peer(name="compute-only", title="compute only", strategy="compute-only")

# What Horovod's launcher would tell all ranks alike.
HOROVOD_VARIABLES = {
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
    "HOROVOD_GLOO_IFACE": INTERFACE,
}

# By strategy: the title, and the backend of the ranks' own barriers.
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
                name=how if codec == "fp32" else f"{how}-{codec}",
                title=title,
                strategy=how if codec == "fp32" else f"{how}-{codec}",
                wire=codec,
                backend=backend,
            )
            for how, (title, backend) in OURS.items()
            for codec in ("fp32", "fp16", "int8")
        ),
        # What tuning costs and gains: the same with nothing tuned.
        Peer(
            name="across-untuned",
            title="the same, untuned",
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
    )
}

# A step that takes longer than this hangs.
STEP_LIMIT_SECONDS = 120.0
START_LIMIT_SECONDS = 120.0

OnRun = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaySpec:
    """Settings of a replay.

    Args:
        models: names of models.
        preset: name of the published setting whose ratio of compute and network holds.
        hosts: Number of lab hosts, at least 2; one rank runs on each.
        rate: Rate of each host's link, in the lab's notation.
        steps: measured in each round, at least 1.
        warmup: steps before these in each round, at least 3: DDP makes new buckets in the second.
        rounds: Number of rounds, at least 1; every peer has one turn in each.
        busy: multiply matrices in place of sleeping.
        sparse: embeddings have sparse gradients where the model has them.
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

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        for name, least in (("hosts", 2), ("steps", 1), ("warmup", 3), ("rounds", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} is {getattr(self, name)}; allowed: {least} and more")
        preset(self.preset)
        for name in self.models:
            model(name)

    def lab(self) -> LabSpec:
        """Return the lab on which it runs."""
        return LabSpec(hosts=self.hosts, rate=self.rate)

    def network(self) -> HostNetwork:
        """Return the lab's links as the limits see them."""
        return HostNetwork(hosts=self.hosts, bits_per_second=self.lab().link_rates[0])

    def published(self) -> Preset:
        """Return the published setting."""
        return preset(self.preset)

    def compute_seconds(self, replayed: ReplayModel) -> float:
        """Return forward and backward passes, as slow as the lab's links ask for."""
        published = self.published()
        return published.step_seconds(replayed) * published.slowdown(self.network())


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayRow:
    """What one peer reached with one model.

    Args:
        model: its name.
        peer: its title; empty where only the limit was computed.
        wire: precision of gradients between hosts.
        steps: Measured steps; None if only the limit was computed.
        limit: Limit of this model and wire precision, from the measured compute-only step.
    """

    model: str
    peer: str
    wire: Wire
    steps: ReplaySamples | None
    limit: Limit

    @property
    def efficiency(self) -> float | None:
        """Compute-only step divided by the measured one."""
        return None if self.steps is None else self.limit.compute_only / self.steps.median


def peers(names: Sequence[str]) -> tuple[Peer, ...]:
    """Return peers by their names.

    Raises:
        UsageError: there is none of a name.
    """
    for name in names:
        if name not in PEERS:
            raise UsageError(f"no peer is called {name!r}; there are {', '.join(PEERS)}")
    return tuple(PEERS[name] for name in names)


def default_peers(spec: ReplaySpec) -> tuple[Peer, ...]:
    """Return the usual peers that can be run here and, if asked for, with sparse gradients.

    Hooks and Horovod's optimizer want dense ones. Horovod is left out where it is not installed.

    Args:
        spec: Settings of the replay.
    """
    usual = [peer for peer in PEERS.values() if peer.is_default]
    allowed = [peer for peer in usual if not spec.sparse or peer.strategy == "ddp"]
    return tuple(
        peer for peer in allowed if not peer.strategy.startswith("horovod") or has_horovod()
    )


def has_horovod() -> bool:
    """Return whether Horovod is installed."""
    return importlib.util.find_spec("horovod") is not None


def limits(spec: ReplaySpec, wires: Sequence[Wire] = ("fp32", "fp16", "int8")) -> list[ReplayRow]:
    """Return the limits alone, without the optimizer's time; nothing is run.

    Args:
        spec: Settings of the replay.
        wires: precisions of gradients between hosts.
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
    """Replay models with peers, and block for minutes per model.

    Args:
        spec: Settings of the replay.
        compared: peers, in the order of the rows.
        on_run: Callback that receives the name of the next run.

    Returns:
        For each model the compute-only step and a row per peer.

    Raises:
        UnsupportedError: the lab cannot be made; it needs root and iproute2.
        SlipstreamError: a rank failed.
    """
    rows: list[ReplayRow] = []
    with Lab(spec.lab()) as lab:
        for replayed in map(model, spec.models):
            rows += _replay_model(lab, spec, replayed, compared, on_run or (lambda _: None))
    return rows


def _replay_model(
    lab: Lab, spec: ReplaySpec, replayed: ReplayModel, compared: Sequence[Peer], on_run: OnRun
) -> list[ReplayRow]:
    taking_turns = [COMPUTE_ONLY, *compared]
    measured: dict[str, list[ReplaySamples]] = {peer.name: [] for peer in taking_turns}
    for round_number in range(spec.rounds):
        for peer in taking_turns:
            on_run(f"{replayed.name}, {peer.title}, round {round_number + 1} of {spec.rounds}")
            measured[peer.name].append(_run(lab, spec, replayed, peer))
    merged = {name: ReplaySamples.merged(parts) for name, parts in measured.items()}
    compute = spec.compute_seconds(replayed)
    whole = merged[COMPUTE_ONLY.name].median
    step = StepSeconds(compute=min(compute, whole), optimizer=max(0.0, whole - compute))
    return [
        ReplayRow(
            model=replayed.name,
            peer=peer.title,
            wire=peer.wire,
            steps=merged[peer.name],
            limit=_limit(spec, replayed, step, peer.wire),
        )
        for peer in taking_turns
    ]


def _limit(spec: ReplaySpec, replayed: ReplayModel, step: StepSeconds, wire: Wire) -> Limit:
    return limit(replayed, step, spec.network(), wire, sparse=spec.sparse)


def _run(lab: Lab, spec: ReplaySpec, replayed: ReplayModel, peer: Peer) -> ReplaySamples:
    """Run the steps on all ranks, and return the measured steps."""
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
        )
        lab.run(
            [sys.executable, "-m", "slipstream.bench.replay.rank", job.as_text()],
            environ=peer.environ,
            timeout_seconds=START_LIMIT_SECONDS + num_steps * STEP_LIMIT_SECONDS,
        )
        return ReplaySamples.read(job.output)
