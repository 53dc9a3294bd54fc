"""Settings and results of the two ranks in the benchmark of the NCCL plugin."""

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
    """Settings of a run of the plugin benchmark, the same on both ranks.

    Args:
        sizes: Sizes of the messages in bytes.
        request_bytes: Largest size of one request in bytes; larger messages are split.
        streams: Numbers of TCP connections with which the plugin is measured.
        sockets: Numbers of plain sockets that are measured in place of the plugin.
        rounds: Number of rounds. In each round, the plugin with each number of connections and each
            number of plain sockets send a message of every size once.
        output: Path of the file to which rank 0 writes the results.
    """

    sizes: tuple[int, ...]
    request_bytes: int
    streams: tuple[int, ...]
    sockets: tuple[int, ...]
    rounds: int
    output: str

    def as_text(self) -> str:
        """Return these settings as JSON text, which `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> PluginJob:
        """Return the settings from the JSON text of `as_text`."""
        return cls(**with_tuples(json.loads(text)))


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginSamples:
    """Times of messages of one size that were sent in one way, one message per round.

    Args:
        contender: Name of the way to send, such as "1 plain socket" or "plugin, 8 streams".
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
        """Median of `seconds` over the rounds."""
        return statistics.median(self.seconds)


def write_samples(path: Path, samples: Sequence[PluginSamples]) -> None:
    """Write samples to a file that `read_samples` reads."""
    path.write_text(json.dumps([asdict(each) for each in samples]))


def read_samples(path: Path) -> list[PluginSamples]:
    """Return the samples that rank 0 wrote."""
    return [PluginSamples(**with_tuples(fields)) for fields in json.loads(path.read_text())]
