"""Jobs of the ranks in a measurement of collectives, and their results."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

# Beginnings of lines from rank 0 to the driver.
NOTE = "bench: "  # name of the next measurement
READ = "bench-read: "  # number of a reading of the link counters that the driver has to take

# Chosen by hand, not measured: long enough for a stable mean of small messages.
ROUND_SECONDS = 0.15  # approximate length of a round of one contender
MOST_CALLS = 5000  # calls of a round, at most

PING_PONG = "tcp ping-pong"
COPY_AND_ADD = "copy and add"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommJob:
    """Job of every rank.

    Args:
        collectives: Collectives in the order in which they are measured.
        sizes: Bytes of the larger buffer of a rank.
        contenders: Names of the contenders: "gloo", "nccl", "slipstream", "slipstream CODEC", or a
            yardstick.
        rounds: Number of rounds; every contender has one turn in each.
        warmup: Calls of each contender that do not count.
        folder: Folder of the files that the driver and the ranks exchange.
        ping_ranks: Two ranks on different hosts for the ping-pong (default empty: no ping-pong).
        ping_address: IPv4 address of the first of these ranks.
        counted_from: Size in bytes from which the driver reads the link counters (default 0:
            never).
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

    def as_text(self) -> str:
        """Return the text that `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> CommJob:
        """Return the job of a text that `as_text` wrote."""
        return cls(**with_tuples(json.loads(text)))

    @property
    def output(self) -> Path:
        """Path of the file that rank 0 writes."""
        return Path(self.folder) / "samples.json"

    def reading(self, number: int) -> Path:
        """Return the path of the file that the driver creates after the reading of this number."""
        return Path(self.folder) / f"read-{number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommSamples:
    """Measured times of one contender.

    Args:
        collective: Name of the collective.
        size: Bytes of the larger buffer of a rank.
        contender: Name of the contender.
        calls: Consecutive calls in each round.
        seconds: Seconds of one call on the slowest rank, one value per round.
        readings: Numbers of the driver's readings before and after one call; empty without them.
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
        """The 99th percentile of the seconds; with fewer than 100 rounds, the maximum."""
        return sorted(self.seconds)[math.ceil(0.99 * len(self.seconds)) - 1]


def write_samples(path: Path, samples: Sequence[CommSamples]) -> None:
    """Write samples to a file that `read_samples` reads."""
    path.write_text(json.dumps([asdict(sample) for sample in samples]))


def read_samples(path: Path) -> list[CommSamples]:
    """Return the samples that rank 0 wrote."""
    return [CommSamples(**with_tuples(fields)) for fields in json.loads(path.read_text())]


def with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass from JSON, with tuples instead of lists."""
    return {
        name: tuple(cast("list[Any]", value)) if isinstance(value, list) else value
        for name, value in fields.items()
    }


def calls_in_a_row(seconds: float) -> int:
    """Return the number of calls in a round, from the seconds of one call."""
    return max(1, min(MOST_CALLS, int(ROUND_SECONDS / max(seconds, 1e-9))))
