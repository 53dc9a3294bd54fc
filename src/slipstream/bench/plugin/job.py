"""The job of the two ranks in the benchmark of the NCCL plugin, and its results."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from slipstream.bench.comm.job import with_tuples

RECEIVER, SENDER = 0, 1  # ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginJob:
    """Job that both ranks run.

    Args:
        sizes: Sizes of the messages in bytes.
        request_bytes: Largest size of one request; larger messages are several requests.
        streams: Numbers of streams of the plugin, one contender for each.
        sockets: Numbers of plain sockets, one contender for each.
        rounds: Number of rounds; in each, every contender sends every message once.
        output: Path of the file to which rank 0 writes the results.
    """

    sizes: tuple[int, ...]
    request_bytes: int
    streams: tuple[int, ...]
    sockets: tuple[int, ...]
    rounds: int
    output: str

    def as_text(self) -> str:
        """Return the text that `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> PluginJob:
        """Return the job of a text that `as_text` wrote."""
        return cls(**with_tuples(json.loads(text)))


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginSamples:
    """Results of one contender and size, by round.

    Args:
        contender: Name of the contender.
        size: Size of the message in bytes.
        seconds: Times in seconds until both ranks were done.
        sender_cpu: Processor times of the sender in seconds.
        receiver_cpu: Processor times of the receiver in seconds.
    """

    contender: str
    size: int
    seconds: tuple[float, ...]
    sender_cpu: tuple[float, ...]
    receiver_cpu: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the seconds over the rounds."""
        return statistics.median(self.seconds)


def write_samples(path: Path, samples: Sequence[PluginSamples]) -> None:
    """Write samples to a file that `read_samples` reads."""
    path.write_text(json.dumps([asdict(each) for each in samples]))


def read_samples(path: Path) -> list[PluginSamples]:
    """Return the samples that rank 0 wrote."""
    return [PluginSamples(**with_tuples(fields)) for fields in json.loads(path.read_text())]
