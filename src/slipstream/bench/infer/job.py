"""Jobs that the driver of an inference benchmark gives to its processes."""

from __future__ import annotations

import itertools
import json
import statistics
from dataclasses import asdict, dataclass
from typing import Any

DISTURBED = 1.25  # of the lower quartile: what a quiet machine stays below


@dataclass(frozen=True, kw_only=True, slots=True)
class InferJob:
    """Job of one process, which prepares a file or runs a contender.

    Args:
        model: its name.
        folder: Folder of the model's files.
        file: Name of the file to prepare; "" for a process that runs a contender.
        contender: Name of the contender to run; "" for a process that prepares files.
        threads: Threads of the contender, at least 1.
        seconds: Time limit of the search of our compilation.
        snr_db: least signal to noise of a compilation of ours, in dB.
        unseen: number of inputs of no set on which ours is compared.
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
        contender: its name.
        turns: seconds of single calls, of every turn; at least one turn, of at least one call.
        snr_db: signal to noise on held-out inputs, beside the model in float32; dB.
        prepare_seconds: Seconds to make the contender's file from the exported model; 0 if it loads
            the exported model.
        load_seconds: Seconds from opening the file to the first result.
        peak_bytes: the most memory that its process ever had.
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
        """The median of the best turn, in seconds: when nothing disturbed it."""
        return min(statistics.median(turn) for turn in self.turns)

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the calls took less than the first, a quarter more than the second."""
        seconds = self.seconds
        if len(seconds) == 1:
            return seconds[0], seconds[0]
        low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return low, high

    @property
    def was_disturbed(self) -> bool:
        """Whether calls took so different times that something else ran as well."""
        low, high = self.quartiles
        return high > DISTURBED * low
