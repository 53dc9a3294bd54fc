"""Jobs that the driver of a replay gives to the ranks, and their results."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slipstream.bench.limits import Wire


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """A way to sum gradients.

    Args:
        name: Name on the command line.
        title: Title for people.
        strategy: Name in `strategies.STRATEGIES` of the way in which the ranks step.
        wire: precision of gradients between hosts.
        backend: Backend of torch.distributed.
        environ: Environment variables of the peer's ranks.
        is_default: Whether the peer takes part if the user chose none.
    """

    name: str
    title: str
    strategy: str
    wire: Wire = "fp32"
    backend: str = "gloo"
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    is_default: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayJob:
    """Job of every rank.

    Args:
        model: name of the model.
        strategy: a name in `strategies.STRATEGIES`.
        backend: Backend of torch.distributed.
        wire: precision of gradients between hosts.
        compute_seconds: Seconds of the forward and backward passes together.
        steps: Number of measured steps, at least 1.
        warmup: steps before these; DDP makes new buckets in the second step.
        busy: multiply matrices in place of sleeping.
        sparse: embeddings have sparse gradients where the model has them.
        output: file that rank 0 writes.
    """

    model: str
    strategy: str
    backend: str
    wire: Wire
    compute_seconds: float
    steps: int
    warmup: int
    busy: bool
    sparse: bool
    output: str

    def as_text(self) -> str:
        """Return the text that `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> ReplayJob:
        """Return the job of a text that `as_text` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaySamples:
    """The steps of one run.

    Args:
        seconds: Seconds of each measured step on the slowest rank.
    """

    seconds: tuple[float, ...]

    @classmethod
    def merged(cls, parts: Iterable[ReplaySamples]) -> ReplaySamples:
        """Return the steps of several runs as one."""
        return cls(seconds=tuple(itertools.chain.from_iterable(part.seconds for part in parts)))

    @property
    def median(self) -> float:
        """Median of the steps, in seconds."""
        return statistics.median(self.seconds)

    @property
    def mean(self) -> float:
        """Mean of the steps, in seconds, which includes the cost of single slow ones."""
        return statistics.fmean(self.seconds)

    def write(self, path: str) -> None:
        """Write results for `read`."""
        Path(path).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: str) -> ReplaySamples:
        """Return the results that rank 0 of a run wrote."""
        return cls(seconds=tuple(json.loads(Path(path).read_text())["seconds"]))
