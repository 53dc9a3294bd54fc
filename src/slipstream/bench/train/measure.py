"""Real training on lab hosts: samples per second over Slipstream and over gloo, by turns.

    results = train(TrainSpec(models=("large",), lab=LabSpec(hosts=4)))

All contenders train in the same processes, from the same weights on the same samples; their losses
have to agree. Nothing else should run on the machine.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.bench.comm.limits import CODEC_SHARE
from slipstream.bench.comm.start import check_torch
from slipstream.bench.train.job import ACROSS, ALONE, NOTE, TrainJob, TrainSamples, read_trained
from slipstream.errors import UsageError
from slipstream.lab import Lab, LabSpec

MODELS = ("resnet", "large")
PEERS = ("gloo",)
OURS = "slipstream"

# Steps of a round last some seconds.
DEFAULT_STEPS = {"resnet": 20, "large": 2}

# Sums of other orders differ in their last bits, and training makes the difference grow.
EXACT_TOLERANCE = 0.01
CODEC_TOLERANCE = 0.05

OnNote = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSpec:
    """Settings of a training benchmark.

    Args:
        models: names of `MODELS`.
        lab: Lab of the training.
        steps: Steps of each contender in each round, at least 1; None for a few seconds of steps.
        rounds: Number of rounds, at least 1.
        warmup: steps of each contender before, at least 2: DDP makes new buckets in the second.
        peers: names of `PEERS`.
        codecs: Codecs of gradients between hosts across the step boundary, names of
            `bench.comm.limits.CODEC_SHARE`.
    """

    models: tuple[str, ...] = MODELS
    lab: LabSpec = field(default_factory=LabSpec)
    steps: int | None = None
    rounds: int = 5
    warmup: int = 2
    peers: tuple[str, ...] = PEERS
    codecs: tuple[str, ...] = ("none",)

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        for kind, names, allowed in (
            ("model", self.models, MODELS),
            ("peer", self.peers, PEERS),
            ("codec", self.codecs, tuple(each for each in CODEC_SHARE if "+" not in each)),
        ):
            for name in names:
                if name not in allowed:
                    raise UsageError(f"the {kind} is {name!r}; allowed: {', '.join(allowed)}")
        numbers = (("steps", self.steps or 1, 1), ("rounds", self.rounds, 1))
        for name, value, least in (*numbers, ("warmup", self.warmup, 2)):
            if value < least:
                raise UsageError(f"{name} is {value}; allowed: {least} and more")
        if self.steps == 0:
            raise UsageError("steps is 0; allowed: 1 and more")

    def contenders(self) -> tuple[str, ...]:
        """Return the contenders, in the order of their turns."""
        across = [
            f"{OURS} {ACROSS}" if codec == "none" else f"{OURS} {ACROSS} {codec}"
            for codec in self.codecs
        ]
        return (ALONE, *self.peers, OURS, *across)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainResult:
    """Results of one model's trainings.

    Args:
        model: its name.
        trained: Samples by contender.
    """

    model: str
    trained: tuple[TrainSamples, ...]

    def of(self, contender: str) -> TrainSamples | None:
        """Return the result of one contender; None if it did not take part."""
        return next((each for each in self.trained if each.contender == contender), None)

    def times_faster(self, trained: TrainSamples, other: str) -> float | None:
        """Return how many times the samples per second of another contender it trains."""
        reference = self.of(other)
        if reference is None:
            return None
        return samples_per_second(trained) / samples_per_second(reference)

    def loss_difference(self, trained: TrainSamples) -> float | None:
        """Return how far the losses of the last quarter are from those over the reference.

        As a share of the first loss. The reference is gloo or, without it, Slipstream under DDP.
        """
        reference = self.of(PEERS[0]) or self.of(OURS)
        if reference is None or trained.contender == ALONE:
            return None
        return abs(last_loss(trained) - last_loss(reference)) / reference.losses[0]

    def agrees(self, trained: TrainSamples) -> bool:
        """Return whether the losses are as near to the reference's as they must be."""
        is_exact = trained.contender in (*PEERS, OURS, f"{OURS} {ACROSS}")
        difference = self.loss_difference(trained)
        return difference is None or difference <= (
            EXACT_TOLERANCE if is_exact else CODEC_TOLERANCE
        )


def samples_per_second(trained: TrainSamples) -> float:
    """Return the samples per second of all ranks together, from the median of the rounds."""
    return trained.samples_per_step / statistics.median(trained.seconds)


def last_loss(trained: TrainSamples) -> float:
    """Return the mean loss of the last quarter of the steps."""
    return statistics.fmean(trained.losses[-max(1, len(trained.losses) // 4) :])


def train(spec: TrainSpec, on_note: OnNote | None = None) -> list[TrainResult]:
    """Run the training, and block for some minutes.

    Args:
        spec: Settings of the training.
        on_note: is told what is measured next.

    Raises:
        UnsupportedError: there is no PyTorch, or the lab cannot be made.
        SlipstreamError: a rank failed.
    """
    check_torch()

    def hear(rank: int, line: str) -> None:
        if rank == 0 and on_note is not None and line.startswith(NOTE):
            on_note(line.removeprefix(NOTE))

    with Lab(spec.lab) as lab:
        return [_train_one(spec, model, lab, hear) for model in spec.models]


def _train_one(
    spec: TrainSpec, model: str, lab: Lab, hear: Callable[[int, str], None]
) -> TrainResult:
    with tempfile.TemporaryDirectory(prefix="slipstream-train-") as folder:
        job = TrainJob(
            model=model,
            contenders=spec.contenders(),
            steps=spec.steps or DEFAULT_STEPS[model],
            rounds=spec.rounds,
            warmup=spec.warmup,
            output=str(Path(folder) / "trained.json"),
        )
        command = [sys.executable, "-m", "slipstream.bench.train.rank", job.as_text()]
        lab.run(command, on_line=hear)
        return TrainResult(model=model, trained=tuple(read_trained(job.output)))
