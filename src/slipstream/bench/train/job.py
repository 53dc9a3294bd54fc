"""Settings and results of the ranks in the training benchmark."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from slipstream.bench.comm.job import with_tuples

NOTE = "bench: "  # prefix of the lines of progress that rank 0 prints

ALONE = "no communication"  # contender that trains without communication
ACROSS = "across"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainJob:
    """Settings of a run of the training benchmark, the same on every rank.

    Args:
        model: Name of the model, from `models.MODELS`.
        contenders: Names of the compared ways to train. `ALONE` does not communicate. "gloo" and
            other names without a space use DDP; -fp16, -bf16 and -powersgd at the end name a hook
            of PyTorch. "slipstream CODEC" is DDP with our hook. In "slipstream across" and
            "slipstream across CODEC", communication also overlaps with the next forward pass.
        steps: Number of steps of each contender in each round.
        rounds: Number of measured rounds.
        warmup: Number of steps of each contender before the first round.
        output: Path of the file to which rank 0 writes the results.
        device: PyTorch's name of the device that trains (default "cpu").
    """

    model: str
    contenders: tuple[str, ...]
    steps: int
    rounds: int
    warmup: int
    output: str
    device: str = "cpu"

    def as_text(self) -> str:
        """Return these settings as JSON text, which `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> TrainJob:
        """Return the settings from the JSON text of `as_text`."""
        return cls(**with_tuples(json.loads(text)))


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSamples:
    """Measurements of a training with one way to communicate.

    Args:
        contender: Name of this way, from `TrainJob.contenders`.
        samples_per_step: Number of samples in a step, on all ranks together.
        parameters: Number of trained parameters of the model, counted by element.
        seconds: Mean seconds per step on the slowest rank, one value per round.
        losses: Loss of every step, including warm-up, averaged over all ranks.
    """

    contender: str
    samples_per_step: int
    parameters: int
    seconds: tuple[float, ...]
    losses: tuple[float, ...]


def write_trained(path: str, results: list[TrainSamples]) -> None:
    """Write the measurements to a file that `read_trained` reads."""
    Path(path).write_text(json.dumps([asdict(result) for result in results]))


def read_trained(path: str) -> list[TrainSamples]:
    """Return the measurements that rank 0 wrote."""
    return [TrainSamples(**with_tuples(fields)) for fields in json.loads(Path(path).read_text())]
