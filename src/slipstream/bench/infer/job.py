"""Instructions for a process of the inference benchmark, and the timing of a contender."""

from __future__ import annotations

import itertools
import json
import statistics
from dataclasses import asdict, dataclass
from typing import Any

# highest ratio of the upper to the lower quartile of call times on an otherwise idle machine
DISTURBED = 1.25


@dataclass(frozen=True, kw_only=True, slots=True)
class InferJob:
    """Instructions for one process, which either prepares a file or runs a contender.

    Args:
        model: Name of the model.
        folder: Path of the folder with the model's files.
        file: Name of the file to prepare; "" for a process that runs a contender.
        contender: Name of the contender to run; "" for a process that prepares files.
        threads: Number of threads of the contender, at least 1.
        seconds: Time limit in seconds for the compilation by Slipstream (default 60).
        snr_db: Smallest signal-to-noise ratio that the model compiled by Slipstream may have, in dB
            (default 0).
        unseen: Number of additional inputs, which no set in `samples` contains, on which the model
            compiled by Slipstream is compared with float32 (default 0).
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
        """Return the instructions as JSON text, which `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> InferJob:
        """Return the instructions that `as_text` wrote as JSON text."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)


@dataclass(frozen=True, kw_only=True, slots=True)
class InferTiming:
    """Timing and accuracy of one contender on one model.

    Args:
        contender: Name of the contender.
        turns: Seconds of every call, grouped by turn; at least one turn with at least one call.
        snr_db: Signal-to-noise ratio of the outputs in dB, relative to the model in float32, on the
            inputs of `samples.HELD_OUT`.
        prepare_seconds: Seconds that it took to make the contender's file from the exported model;
            0 if the contender needs no file of its own.
        load_seconds: Seconds from opening the file until the first result.
        peak_bytes: Peak memory of the process in bytes.
        detail: Engine and precision of the model compiled by Slipstream; empty for other engines.
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
        """Median seconds per call."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """Median seconds per call in the fastest turn, which other programs disturbed least."""
        return min(statistics.median(turn) for turn in self.turns)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile of the seconds of all calls."""
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
