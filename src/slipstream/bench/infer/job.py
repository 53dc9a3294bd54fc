"""Jobs of the processes of an inference benchmark, and the timings of contenders."""

from __future__ import annotations

import itertools
import json
import statistics
from dataclasses import asdict, dataclass
from typing import Any

DISTURBED = 1.25  # ratio of the quartiles below which a quiet machine stays


@dataclass(frozen=True, kw_only=True, slots=True)
class InferJob:
    """Job of one process, which prepares a file or runs a contender.

    Args:
        model: Name of the model.
        folder: Folder of the model's files.
        file: Name of the file to prepare; "" for a process that runs a contender.
        contender: Name of the contender to run; "" for a process that prepares files.
        threads: Threads of the contender, at least 1.
        seconds: Time limit of the search of our compilation.
        snr_db: Smallest signal-to-noise ratio of our compilation, in dB (default 0).
        unseen: Number of inputs outside all sets of samples on which ours is compared (default 0).
    """

    model: str
    folder: str
    file: str = ""
    contender: str = ""
    threads: int = 1
    seconds: float = 60.0
    snr_db: float = 0.0
    unseen: int = 0

    def as_text(self) -> str:
        """Return the text that `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> InferJob:
        """Return the job of a text that `as_text` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)


@dataclass(frozen=True, kw_only=True, slots=True)
class InferTiming:
    """Result of one contender with one model.

    Args:
        contender: Name of the contender.
        turns: Seconds of the calls of each turn; at least one turn with at least one call.
        snr_db: Signal-to-noise ratio on held-out inputs against the model in float32, in dB.
        prepare_seconds: Seconds to make the contender's file from the exported model; 0 if it loads
            the exported model.
        load_seconds: Seconds from opening the file to the first result.
        peak_bytes: Peak memory of the process in bytes.
        detail: Engine that runs our model; empty for peers.
    """

    contender: str
    turns: tuple[tuple[float, ...], ...]
    snr_db: float
    prepare_seconds: float
    load_seconds: float
    peak_bytes: int
    detail: str = ""

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds of all calls."""
        return tuple(itertools.chain.from_iterable(self.turns))

    @property
    def median(self) -> float:
        """Median of all calls, in seconds."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """Median of the best turn, which nothing disturbed, in seconds."""
        return min(statistics.median(turn) for turn in self.turns)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile of all calls, in seconds."""
        seconds = self.seconds
        if len(seconds) == 1:
            return seconds[0], seconds[0]
        low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return low, high

    @property
    def was_disturbed(self) -> bool:
        """Whether the times of calls differ so much that another program must have run."""
        low, high = self.quartiles
        return high > DISTURBED * low
