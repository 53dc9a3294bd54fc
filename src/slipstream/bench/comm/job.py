"""Instructions for the ranks of the benchmark of collectives, and the times that they measure."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

# Prefixes of the lines that rank 0 prints for the driver, the process that started the ranks.
NOTE = "bench: "  # followed by the name of the next measurement
READ = "bench-read: "  # followed by a number: the driver reads the link counters under this number

# Chosen by hand, not measured: long enough for a stable mean of small messages.
ROUND_SECONDS = 0.15  # approximate seconds of one contender's turn in a round
MOST_CALLS = 5000  # highest number of calls in a turn

PING_PONG = "tcp ping-pong"
COPY_AND_ADD = "copy and add"
HOST_COPIES = "copies to host and back"
YARDSTICKS = (PING_PONG, COPY_AND_ADD, HOST_COPIES)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommJob:
    """Instructions for all ranks: what to measure, and how.

    Args:
        collectives: Names of the collectives, in the order in which they are measured.
        sizes: Sizes in bytes of the larger of a rank's two buffers (input and output).
        contenders: Names of the contenders: "gloo", "nccl" or another name from
            `devices.NCCL_WAYS`, "slipstream", "slipstream CODEC", or a reference measurement from
            `YARDSTICKS`.
        rounds: Number of rounds; every contender has one turn in each.
        warmup: Number of calls of each contender before the timed calls.
        folder: Path of the folder for files that the ranks exchange with the process that started
            them.
        ping_ranks: Two ranks on different hosts that run the ping-pong (default empty: no
            ping-pong).
        ping_address: IPv4 address of the first rank in `ping_ranks`.
        counted_from: Smallest size in bytes for which the bytes on the lab's links are counted; 0
            if they are never counted (default).
        device: PyTorch's name of the device that has the tensors (default "cpu").
    """

    collectives: tuple[str, ...]
    sizes: tuple[int, ...]
    contenders: tuple[str, ...]
    rounds: int
    warmup: int
    folder: str
    ping_ranks: tuple[int, ...] = ()
    ping_address: str = ""
    counted_from: int = 0
    device: str = "cpu"

    def as_text(self) -> str:
        """Return the instructions as JSON text, which `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> CommJob:
        """Return the instructions that `as_text` wrote as JSON text."""
        return cls(**with_tuples(json.loads(text)))

    @property
    def output(self) -> Path:
        """Path of the file to which rank 0 writes the measured times."""
        return Path(self.folder) / "samples.json"

    def reading(self, number: int) -> Path:
        """Return the path of a file that appears when the link counters have been read."""
        return Path(self.folder) / f"read-{number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommSamples:
    """Measured times of one contender for one collective and size.

    Args:
        collective: Name of the collective.
        size: Size in bytes of the larger of a rank's two buffers.
        contender: Name of the contender.
        calls: Number of consecutive calls in each round.
        seconds: Seconds per call on the slowest rank, one value per round.
        readings: Identifiers of two readings of the link counters, one before and one after a call;
            empty if the counters were not read.
    """

    collective: str
    size: int
    contender: str
    calls: int
    seconds: tuple[float, ...]
    readings: tuple[int, ...] = ()

    @property
    def median(self) -> float:
        """Median seconds of one call."""
        return statistics.median(self.seconds)

    @property
    def p99(self) -> float:
        """99th percentile of the seconds per call; with fewer than 100 rounds, the maximum."""
        return sorted(self.seconds)[math.ceil(0.99 * len(self.seconds)) - 1]


def write_samples(path: Path, samples: Sequence[CommSamples]) -> None:
    """Write samples to a file that `read_samples` reads."""
    path.write_text(json.dumps([asdict(sample) for sample in samples]))


def read_samples(path: Path) -> list[CommSamples]:
    """Return the samples that rank 0 wrote."""
    return [CommSamples(**with_tuples(fields)) for fields in json.loads(path.read_text())]


def with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a dataclass's fields, which were read from JSON, with all lists replaced by tuples."""
    return {
        name: tuple(cast("list[Any]", value)) if isinstance(value, list) else value
        for name, value in fields.items()
    }


def calls_in_a_row(seconds: float) -> int:
    """Return the number of calls that take about `ROUND_SECONDS`, at most `MOST_CALLS`.

    Args:
        seconds: Duration of one call in seconds.
    """
    return max(1, min(MOST_CALLS, int(ROUND_SECONDS / max(seconds, 1e-9))))
