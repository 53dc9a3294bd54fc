"""Settings of the ranks in a replay, and the step times that they measure."""

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
    """A compared library, and the way in which it sums gradients.

    Args:
        name: Name on the command line.
        title: Readable name.
        strategy: Name from `strategies.STRATEGIES`.
        wire: Precision of gradients between hosts (default "fp32").
        backend: Backend of torch.distributed, or a name from `devices.NCCL_WAYS`.
        environ: Environment variables of the ranks that run this library.
        is_default: Whether the library is measured if the user names no libraries (default True).
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
    """Settings of one run of a replay, the same on every rank.

    Args:
        model: Name of the model.
        strategy: Name from `strategies.STRATEGIES`.
        backend: Backend of torch.distributed.
        wire: Precision of gradients between hosts.
        compute_seconds: Seconds of the forward and backward passes together.
        steps: Number of measured steps, at least 1.
        warmup: Number of steps before the measured steps; DDP forms its buckets anew in the second
            step.
        busy: Whether the ranks multiply matrices instead of sleeping.
        sparse: Whether embeddings that the model marks as sparse have sparse gradients.
        output: Path of the file to which rank 0 writes the step times.
        device: PyTorch's name of the device that has the gradients and computes (default "cpu").
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
    device: str = "cpu"

    def as_text(self) -> str:
        """Return these settings as JSON text, which `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> ReplayJob:
        """Return the settings from the JSON text of `as_text`."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaySamples:
    """Measured step times of one run.

    Args:
        seconds: Seconds of each measured step on the slowest rank.
    """

    seconds: tuple[float, ...]

    @classmethod
    def merged(cls, parts: Iterable[ReplaySamples]) -> ReplaySamples:
        """Return the steps of several runs as if they were steps of one run."""
        return cls(seconds=tuple(itertools.chain.from_iterable(part.seconds for part in parts)))

    @property
    def median(self) -> float:
        """Median seconds per step."""
        return statistics.median(self.seconds)

    @property
    def mean(self) -> float:
        """Mean seconds per step; unlike the median, it rises with a few slow steps."""
        return statistics.fmean(self.seconds)

    def write(self, path: str) -> None:
        """Write the step times to a file that `read` reads."""
        Path(path).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: str) -> ReplaySamples:
        """Return the step times that rank 0 wrote."""
        return cls(seconds=tuple(json.loads(Path(path).read_text())["seconds"]))
