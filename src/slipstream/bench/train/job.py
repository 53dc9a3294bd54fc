"""Jobs of the ranks in a training benchmark, and their results."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from slipstream.bench.comm.job import with_tuples

# A line of rank 0 that starts so says how far it is.
NOTE = "bench: "

# The same training without communication: what it would cost alone.
ALONE = "no communication"
ACROSS = "across"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainJob:
    """Job of every rank.

    Args:
        model: a name in `models.MODELS`.
        contenders: `ALONE`, gloo, slipstream, both with DDP; slipstream across, with the codec of
            gradients behind it if they have one.
        steps: Steps of each contender in each round.
        rounds: Number of measured rounds.
        warmup: steps of each contender before these.
        output: file that rank 0 writes.
    """

    model: str
    contenders: tuple[str, ...]
    steps: int
    rounds: int
    warmup: int
    output: str

    def as_text(self) -> str:
        """Return the text that `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> TrainJob:
        """Return the job of a text that `as_text` wrote."""
        return cls(**with_tuples(json.loads(text)))


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSamples:
    """Measured training of one contender.

    Args:
        contender: its name.
        samples_per_step: Samples of a step on all ranks together.
        parameters: Number of the model's parameters.
        seconds: Mean seconds of a step on the slowest rank, one value per round.
        losses: Losses of all steps from the first one on, each the mean over all ranks.
    """

    contender: str
    samples_per_step: int
    parameters: int
    seconds: tuple[float, ...]
    losses: tuple[float, ...]


def write_trained(path: str, results: list[TrainSamples]) -> None:
    """Write samples for `read_trained`."""
    Path(path).write_text(json.dumps([asdict(each) for each in results]))


def read_trained(path: str) -> list[TrainSamples]:
    """Return the results that rank 0 wrote."""
    return [TrainSamples(**with_tuples(fields)) for fields in json.loads(Path(path).read_text())]
