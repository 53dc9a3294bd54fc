"""Measurement of real training on simulated hosts, over Slipstream and over gloo.

    results = train(TrainSpec(models=("large",), lab=LabSpec(hosts=4)))

A contender is a compared way to train, such as DDP over gloo. All contenders train in the same
processes and take turns. All contenders start from the same weights and see the same samples, so
their losses have to agree. Nothing else should run on the machine.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.bench.comm.limits import CODEC_SHARE, limit_seconds
from slipstream.bench.comm.start import check_torch
from slipstream.bench.devices import (
    CPU,
    NCCL,
    NCCL_PLUGIN,
    NCCL_TUNED,
    NCCL_WAYS,
    check_device,
    has_nccl,
    nccl_environment,
    nccl_obstacle,
)
from slipstream.bench.train.job import ACROSS, ALONE, NOTE, TrainJob, TrainSamples, read_trained
from slipstream.errors import UsageError
from slipstream.lab import Lab, LabSpec, open_lab

CPU_MODELS = ("resnet", "large")
DEVICE_MODELS = ("resnet50", "gpt2")
MODELS = (*CPU_MODELS, *DEVICE_MODELS, "tiny")
GLOO = "gloo"
OURS = "slipstream"

# Backends, also with the hooks of DDP that send fewer bytes.
HOOKS = ("fp16", "bf16", "powersgd")
CPU_PEERS = (GLOO, *(f"{GLOO}-{hook}" for hook in HOOKS))
DEVICE_PEERS = (*CPU_PEERS, *NCCL_WAYS, *(f"{NCCL}-{hook}" for hook in HOOKS))

# Default number of steps in a round, which takes some seconds.
DEFAULT_STEPS = {"resnet": 20, "large": 2, "resnet50": 5, "gpt2": 3, "tiny": 5}

# Largest allowed differences of the loss, relative to the first loss. Sums in a different order
# differ in their last bits, and training amplifies the difference. Chosen by hand, not measured.
EXACT_TOLERANCE = 0.01
CODEC_TOLERANCE = 0.05

OnNote = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSpec:
    """Settings of a training benchmark.

    Args:
        models: Names of the models, from `MODELS`.
        lab: Description of the simulated hosts.
        steps: Number of steps of each contender in each round, at least 1 (default None: as many
            as take a few seconds with this model).
        rounds: Number of rounds, at least 1.
        warmup: Number of steps of each contender before the first round, at least 2, because DDP
            forms its buckets anew in the second step.
        peers: Names of the compared backends of other authors, from `DEVICE_PEERS`.
        codecs: Codecs of gradients between hosts, from `bench.comm.limits.CODEC_SHARE`. Each codec
            adds a contender whose communication also overlaps with the next forward pass, and on a
            device one whose communication does not.
        device: PyTorch's name of the device that trains, such as "cuda" (default "cpu").
        relay: Whether the links of the lab are a relay even where namespaces can be made (default
            False).
    """

    models: tuple[str, ...] = CPU_MODELS
    lab: LabSpec = field(default_factory=LabSpec)
    steps: int | None = None
    rounds: int = 5
    warmup: int = 2
    peers: tuple[str, ...] = (GLOO,)
    codecs: tuple[str, ...] = ("none",)
    device: str = CPU
    relay: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        for kind, names, allowed in (
            ("model", self.models, MODELS),
            ("peer", self.peers, DEVICE_PEERS),
            ("codec", self.codecs, tuple(codec for codec in CODEC_SHARE if "+" not in codec)),
        ):
            for name in names:
                if name not in allowed:
                    raise UsageError(f"the {kind} is {name!r}; allowed: {', '.join(allowed)}")
        numbers = (("steps", self.steps or 1, 1), ("rounds", self.rounds, 1))
        for name, value, least in (*numbers, ("warmup", self.warmup, 2)):
            if value < least:
                raise UsageError(f"{name} is {value}; allowed: at least {least}")
        if self.steps == 0:
            raise UsageError("steps is 0; allowed: at least 1")

    def missing(self) -> dict[str, str]:
        """Return the peers that cannot take part, each with the reason."""
        reasons = {peer: self._obstacle(peer) for peer in self.peers}
        return {peer: reason for peer, reason in reasons.items() if reason}

    def _obstacle(self, peer: str) -> str:
        if peer.startswith(NCCL):
            return nccl_obstacle(peer, self.device, self.lab.ranks_per_host)
        if peer.endswith("-bf16") and not has_nccl():
            return "PyTorch has its bf16 hook only where it has NCCL"
        return ""

    def runs(self) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
        """Yield the contenders that share processes, and the environment of these processes."""
        missing = self.missing()
        peers = [peer for peer in self.peers if peer not in missing]
        alone = [peer for peer in peers if peer in (NCCL_TUNED, NCCL_PLUGIN)]
        yield (
            (ALONE, *(peer for peer in peers if peer not in alone), *self._ours()),
            {} if self.device == CPU else nccl_environment(NCCL),
        )
        for peer in alone:
            yield (peer,), nccl_environment(peer)

    def _ours(self) -> tuple[str, ...]:
        encoded = [codec for codec in self.codecs if codec != "none" and self.device != CPU]
        across = [
            f"{OURS} {ACROSS}" if codec == "none" else f"{OURS} {ACROSS} {codec}"
            for codec in self.codecs
        ]
        return (OURS, *(f"{OURS} {codec}" for codec in encoded), *across)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainResult:
    """Results of one model.

    Args:
        model: Name of the model.
        trained: Measurements of all contenders.
        is_relayed: Whether the links of the lab were a relay (default False).
    """

    model: str
    trained: tuple[TrainSamples, ...]
    is_relayed: bool = False

    def of(self, contender: str) -> TrainSamples | None:
        """Return the measurements of one contender; None if the contender did not take part."""
        return next((result for result in self.trained if result.contender == contender), None)

    def times_faster(self, trained: TrainSamples, other: str) -> float | None:
        """Return the speed of `trained` divided by that of `other`; None if `other` is missing."""
        reference = self.of(other)
        if reference is None:
            return None
        return samples_per_second(trained) / samples_per_second(reference)

    def loss_difference(self, trained: TrainSamples) -> float | None:
        """Return the last loss's relative difference from the reference; None without a reference.

        The last loss is the mean over the last quarter of the steps, and the difference is divided
        by the reference's first loss. The reference is gloo or, without gloo, Slipstream with DDP.
        """
        reference = self.of(GLOO) or self.of(OURS)
        if reference is None or trained.contender == ALONE:
            return None
        return abs(last_loss(trained) - last_loss(reference)) / reference.losses[0]

    def agrees(self, trained: TrainSamples) -> bool:
        """Return whether the loss differs from that of the reference by at most the tolerance.

        PowerSGD is not judged, because it needs many steps to send what it has left out.
        """
        codec = codec_of(trained.contender)
        difference = self.loss_difference(trained)
        return (
            difference is None
            or codec is None
            or difference <= (EXACT_TOLERANCE if codec == "none" else CODEC_TOLERANCE)
        )

    def limit_share(self, trained: TrainSamples, lab: LabSpec) -> float | None:
        """Return the shortest possible step, divided by the measured step; None if unknown.

        No step is shorter than one without communication, or than the transfer of its gradients.

        Args:
            trained: Measurements of a contender.
            lab: Description of the hosts and links.
        """
        alone, codec = self.of(ALONE), codec_of(trained.contender)
        if alone is None or trained is alone or codec is None:
            return None
        transfer = limit_seconds(lab, "allreduce", 4 * trained.parameters, codec)
        return max(statistics.median(alone.seconds), transfer) / statistics.median(trained.seconds)


def codec_of(contender: str) -> str | None:
    """Return the codec of a contender's gradients between hosts; None for PowerSGD, which has none.

    Args:
        contender: Name from `TrainJob.contenders`.
    """
    way, _, details = contender.partition(" ")
    hook = way.partition("-")[2]
    if hook in HOOKS:
        return None if hook == "powersgd" else hook
    return details.removeprefix(ACROSS).strip() or "none"


def samples_per_second(trained: TrainSamples) -> float:
    """Return the samples per second of all ranks together, the median over the rounds."""
    return trained.samples_per_step / statistics.median(trained.seconds)


def last_loss(trained: TrainSamples) -> float:
    """Return the mean loss of the last quarter of the steps."""
    return statistics.fmean(trained.losses[-max(1, len(trained.losses) // 4) :])


def train(spec: TrainSpec, on_note: OnNote | None = None) -> list[TrainResult]:
    """Run the benchmark, which takes some minutes.

    Args:
        spec: Settings of the benchmark.
        on_note: Function that receives the name of the next measurement (default None).

    Raises:
        UnsupportedError: PyTorch is not installed, or the hosts cannot be simulated.
        SlipstreamError: a rank failed.
    """
    check_torch()
    check_device(spec.device)

    def on_line(rank: int, line: str) -> None:
        if rank == 0 and on_note is not None and line.startswith(NOTE):
            on_note(line.removeprefix(NOTE))

    with open_lab(spec.lab, relay=spec.relay) as lab:
        return [_train_one(spec, model, lab, on_line) for model in spec.models]


def _train_one(
    spec: TrainSpec, model: str, lab: Lab, on_line: Callable[[int, str], None]
) -> TrainResult:
    trained: list[TrainSamples] = []
    for contenders, environ in spec.runs():
        with tempfile.TemporaryDirectory(prefix="slipstream-train-") as folder:
            job = TrainJob(
                model=model,
                contenders=contenders,
                steps=spec.steps or DEFAULT_STEPS[model],
                rounds=spec.rounds,
                warmup=spec.warmup,
                output=str(Path(folder) / "trained.json"),
                device=spec.device,
            )
            command = [sys.executable, "-m", "slipstream.bench.train.rank", job.as_text()]
            lab.run(command, environ=environ, on_line=on_line)
            trained += read_trained(job.output)
    return TrainResult(model=model, trained=tuple(trained), is_relayed=lab.is_relayed)
