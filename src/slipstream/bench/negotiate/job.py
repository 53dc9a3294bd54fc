"""Settings and results of the ranks in the negotiation benchmark."""

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
    """Settings of a run of the negotiation benchmark, the same on every rank.

    Args:
        tensors: Number of tensors; every rank submits them in its own order.
        rounds: Number of rounds of the measurement. Each round times every method in three cases:
            all tensors are new, all tensors are known, and some tensors are submitted one by one.
            In the last case, all ranks submit in the same order.
        cycle_seconds: Shortest time in seconds between the starts of consecutive rounds of our
            negotiation.
        output: Path of the file to which rank 0 writes the results.
    """

    tensors: int
    rounds: int
    cycle_seconds: float
    output: str

    def as_text(self) -> str:
        """Return these settings as JSON text, which `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> NegotiateJob:
        """Return the settings from the JSON text of `as_text`."""
        return cls(**json.loads(text))


@dataclass(frozen=True, kw_only=True, slots=True)
class Negotiated:
    """Results of one negotiation method in one case.

    Each field from `seconds` on has one value for each round of the measurement. Each value is the
    maximum over all ranks. In the case `ONE_BY_ONE`, values are per tensor.

    Args:
        contender: Name of the negotiation method, from `CONTENDERS`.
        case: Name of the case, from `CASES`.
        seconds: Times in seconds until every rank knew that all tensors were ready.
        exchanges: Numbers of rounds of negotiation that were needed.
        messages: Numbers of messages that one rank sent and received.
        sent_bytes: Bytes that one rank sent, including headers.
    """

    contender: str
    case: str
    seconds: tuple[float, ...]
    exchanges: tuple[int, ...]
    messages: tuple[int, ...]
    sent_bytes: tuple[int, ...]

    @property
    def median(self) -> float:
        """Median of `seconds` over the rounds of the measurement."""
        return statistics.median(self.seconds)


def write_results(path: Path, results: Sequence[Negotiated]) -> None:
    """Write results to a file that `read_results` reads."""
    path.write_text(json.dumps([asdict(result) for result in results]))


def read_results(path: Path) -> list[Negotiated]:
    """Return the results that rank 0 wrote."""
    return [Negotiated(**with_tuples(fields)) for fields in json.loads(path.read_text())]
