"""The options of an elastic job."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slipstream.cluster.launch.hosts import Host
from slipstream.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRules:
    """The rules of Horovod's launcher, in which a process that fails takes its host out of the job.

    The members wait for processes that have started and will join, from the next commit on. If no
    process is left after a failure, the job has failed.

    Args:
        cooldown_seconds: Shortest and longest time in seconds for which a host stays out; it
            doubles with each failure. None means for good.
        max_changes: Largest number of changes of the members; no limit if it is None (the default).
    """

    cooldown_seconds: tuple[float, float] | None
    max_changes: int | None = None

    def seconds_out(self, num_failures: int) -> float:
        """Return the time in seconds for which a host stays out after its n-th failure."""
        if self.cooldown_seconds is None:
            return float("inf")
        shortest, longest = self.cooldown_seconds
        return min(shortest * 2.0 ** min(num_failures, 30), longest)


class HostSource(Protocol):
    """The interface of a source of hosts, which may come and go."""

    @property
    def name(self) -> str:
        """Name of the source, for messages."""
        ...

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Hosts of the newest list."""
        ...

    @property
    def problem(self) -> str:
        """Reason why the last look failed, or ""."""
        ...

    @property
    def has_answered(self) -> bool:
        """Whether the source has been asked successfully or not at least once."""
        ...

    @property
    def due_at(self) -> float:
        """Time on the monotonic clock at which `advance` must be called at the latest."""
        ...

    def advance(self) -> bool:
        """Look for a new list without blocking; return whether `hosts` or `problem` is new."""
        ...

    def close(self) -> None:
        """End the source."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ElasticOptions:
    """The limits of an elastic job, and the source of its hosts.

    Args:
        min_ranks: Smallest number of ranks with which the job starts and goes on, 1 or more.
        max_ranks: Largest number of processes, `min_ranks` or more.
        hosts_from: Path of a program that prints the hosts, one `[user@]name[:slots]` per line; by
            default, the hosts of the job stay the same.
        source: Source of the hosts in place of `hosts_from` (default None).
        default_slots: Number of slots of a host that the program prints without a number (default
            1).
        max_restarts: Largest number of failed processes that are replaced; no limit if it is None
            (the default).
        wait_seconds: Longest time in seconds for which fewer than `min_ranks` slots may be usable
            (default 600).
        poll_seconds: Time in seconds from the end of a run of `hosts_from` to the next (default 1).
        host_rules: Horovod's rules for hosts; None (the default) if failures are of single slots.

    Raises:
        UsageError: `max_ranks` is smaller than `min_ranks`.
    """

    min_ranks: int
    max_ranks: int
    hosts_from: Path | None = None
    source: HostSource | None = None
    default_slots: int = 1
    max_restarts: int | None = None
    wait_seconds: float = 600.0
    poll_seconds: float = 1.0
    host_rules: HostRules | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.min_ranks <= self.max_ranks:
            raise UsageError(
                f"--min is {self.min_ranks}; allowed: 1 to {self.max_ranks}, the largest number of"
                " ranks (--max)"
            )
