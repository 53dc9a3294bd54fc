"""The options of an elastic job."""

from dataclasses import dataclass
from pathlib import Path

from slipstream.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class ElasticOptions:
    """The limits of an elastic job, and the source of its hosts.

    Args:
        min_ranks: Smallest number of ranks with which the job starts and goes on, 1 or more.
        max_ranks: Largest number of processes, `min_ranks` or more.
        hosts_from: Path of a program that prints the hosts, one `[user@]name[:slots]` per line; by
            default, the hosts of the job stay the same.
        default_slots: Number of slots of a host that the program prints without a number (default
            1).
        max_restarts: Largest number of failed processes that are replaced; no limit if it is None
            (the default).
        wait_seconds: Longest time in seconds for which fewer than `min_ranks` slots may be usable
            (default 600).

    Raises:
        UsageError: `max_ranks` is smaller than `min_ranks`.
    """

    min_ranks: int
    max_ranks: int
    hosts_from: Path | None = None
    default_slots: int = 1
    max_restarts: int | None = None
    wait_seconds: float = 600.0

    def __post_init__(self) -> None:
        if not 1 <= self.min_ranks <= self.max_ranks:
            raise UsageError(
                f"--min is {self.min_ranks}; allowed: 1 to {self.max_ranks}, the largest number of"
                " ranks (--max)"
            )
