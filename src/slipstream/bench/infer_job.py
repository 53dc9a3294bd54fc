"""What processes of an inference benchmark do, as the driver tells it to them."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass
from typing import Any

READY, FAILED = "ready", "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What one process prepares or runs.

    Args:
        model: its name.
        folder: of the model's files.
        file: to prepare; "" for a process that runs a contender.
        contender: to run; "" for a process that prepares.
        threads: of the contender, at least 1.
        seconds: that a compilation of ours may search for.
        snr_db: least signal to noise of a compilation of ours, in dB.
    """

    model: str
    folder: str
    file: str = ""
    contender: str = ""
    threads: int = 1
    seconds: float = 60.0
    snr_db: float = 0.0

    def as_text(self) -> str:
        """Returns what `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Job:
        """Returns the job of a text that `as_text` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """What one contender reached with one model.

    Args:
        contender: its name.
        seconds: of single calls, at least 1 of them.
        snr_db: signal to noise on held-out inputs, beside the model in float32; dB.
        prepare_seconds: to make its file from the exported model; 0 where it loads that one.
        load_seconds: from the file to the first result.
        peak_bytes: the most memory that its process ever had.
        detail: how ours runs it.
    """

    contender: str
    seconds: tuple[float, ...]
    snr_db: float
    prepare_seconds: float
    load_seconds: float
    peak_bytes: int
    detail: str = ""

    @property
    def median(self) -> float:
        """Of the calls, in seconds."""
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the calls took less than the first, a quarter more than the second."""
        if len(self.seconds) == 1:
            return self.seconds[0], self.seconds[0]
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, high
