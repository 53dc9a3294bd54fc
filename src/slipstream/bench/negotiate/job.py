"""The job of the ranks in the benchmark of negotiation, and its results."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from slipstream.bench.comm.job import with_tuples

OURS = "slipstream"
COORDINATOR = "rank-0 coordinator"
CONTENDERS = (OURS, COORDINATOR)

NEW = "all, new"
KNOWN = "all, known"
ONE_BY_ONE = "one by one"
CASES = (NEW, KNOWN, ONE_BY_ONE)


@dataclass(frozen=True, kw_only=True, slots=True)
class NegotiateJob:
    """Job that every rank runs.

    Args:
        tensors: Number of tensors; every rank submits them in its own order.
        rounds: Number of rounds of the measurement. In each round, every contender negotiates the
            cases in `CASES`: new tensors, the same tensors again, and some of them one by one in
            the same order on all ranks.
        cycle_seconds: Shortest time in seconds between the starts of consecutive rounds of our
            negotiation.
        output: Path of the file to which rank 0 writes the results.
    """

    tensors: int
    rounds: int
    cycle_seconds: float
    output: str

    def as_text(self) -> str:
        """Return the job as JSON text, which `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> NegotiateJob:
        """Return the job from the JSON text of `as_text`."""
        return cls(**json.loads(text))


@dataclass(frozen=True, kw_only=True, slots=True)
class Negotiated:
    """Results of one contender, by round of the measurement.

    Each value is the maximum over all ranks. In the case `ONE_BY_ONE`, values are per tensor.

    Args:
        contender: Name of the contender.
        case: Name of the case, from `CASES`.
        seconds: Seconds until every rank knew that all tensors were ready.
        exchanges: Number of rounds of negotiation, per round of the measurement.
        messages: Number of messages that one rank sent and received, per round of the measurement.
        sent_bytes: Bytes that one rank sent, including headers, per round of the measurement.
    """

    contender: str
    case: str
    seconds: tuple[float, ...]
    exchanges: tuple[int, ...]
    messages: tuple[int, ...]
    sent_bytes: tuple[int, ...]

    @property
    def median(self) -> float:
        """Median of the seconds over the rounds."""
        return statistics.median(self.seconds)


def write_results(path: Path, results: Sequence[Negotiated]) -> None:
    """Write results to a file that `read_results` reads."""
    path.write_text(json.dumps([asdict(result) for result in results]))


def read_results(path: Path) -> list[Negotiated]:
    """Return the results that rank 0 wrote."""
    return [Negotiated(**with_tuples(fields)) for fields in json.loads(path.read_text())]
