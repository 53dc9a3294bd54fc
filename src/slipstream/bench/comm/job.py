"""Jobs of the ranks in a measurement of collectives, and their results."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

# A line of rank 0 that starts so is meant for the driver: what is measured, or a reading to take.
NOTE = "bench: "
READ = "bench-read: "

# A round of one contender lasts about so long, and has at most so many calls.
ROUND_SECONDS = 0.15
MOST_CALLS = 5000

PING_PONG = "tcp ping-pong"
COPY_AND_ADD = "copy and add"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommJob:
    """Job of every rank.

    Args:
        collectives: Collectives in the order in which they are measured.
        sizes: bytes, of the larger buffer of a rank.
        contenders: gloo, nccl, slipstream, slipstream with a codec behind a blank, or a yardstick.
        rounds: Number of rounds; every contender has one turn in each.
        warmup: calls of each contender that do not count.
        folder: Folder of the files that the driver and the ranks exchange.
        ping_ranks: two ranks on different hosts, for the ping-pong; none without it.
        ping_address: IPv4 address of the first of them.
        counted_from: size from which the driver reads what passes the links; 0 for never.
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
        """The file that rank 0 writes."""
        return Path(self.folder) / "samples.json"

    def reading(self, number: int) -> Path:
        """Return the path of the file that the driver creates after a reading."""
        return Path(self.folder) / f"read-{number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommSamples:
    """Measured times of one contender.

    Args:
        collective: Name of the collective.
        size: bytes.
        contender: its name.
        calls: Consecutive calls in each round.
        seconds: Seconds of one call on the slowest rank, one value per round.
        readings: numbers of the driver's readings before and after one call, or none.
    """

    collective: str
    size: int
    contender: str
    calls: int
    seconds: tuple[float, ...]
    readings: tuple[int, ...] = ()

    @property
    def median(self) -> float:
        """Seconds of one call."""
        return statistics.median(self.seconds)

    @property
    def p99(self) -> float:
        """Seconds that 99 of 100 rounds took at most; with fewer rounds, the longest."""
        return sorted(self.seconds)[math.ceil(0.99 * len(self.seconds)) - 1]


def write_samples(path: Path, samples: Sequence[CommSamples]) -> None:
    """Write samples for `read_samples`."""
    path.write_text(json.dumps([asdict(each) for each in samples]))


def read_samples(path: Path) -> list[CommSamples]:
    """Return the results that rank 0 wrote."""
    return [CommSamples(**with_tuples(fields)) for fields in json.loads(path.read_text())]


def with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with tuples in place of the lists that JSON made of them."""
    return {
        name: tuple(cast("list[Any]", value)) if isinstance(value, list) else value
        for name, value in fields.items()
    }


def calls_in_a_row(seconds: float) -> int:
    """Return the number of calls in a round, from the seconds of one call."""
    return max(1, min(MOST_CALLS, int(ROUND_SECONDS / max(seconds, 1e-9))))
