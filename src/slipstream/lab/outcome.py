"""Results of a run in a lab."""

import signal
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFailure:
    """Failure of the rank that failed first in a run.

    Args:
        rank: Number of the rank, from 0.
        host: Host on which the rank ran.
        status: Exit code, or the negative number of the signal that ended the rank; None if the
            rank was still running at the time limit.
        seconds: Seconds from the start of the run to the failure.
        last_lines: Last lines of the rank's output, at most twenty.
    """

    rank: int
    host: int
    status: int | None
    seconds: float
    last_lines: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Exit status of the rank in words."""
        if self.status is None:
            return "still running"
        if self.status < 0:
            return f"ended by {signal.Signals(-self.status).name}"
        return f"exit code {self.status}"

    def __str__(self) -> str:
        head = (
            f"rank {self.rank} on host {self.host} failed first, after {self.seconds:.1f} s:"
            f" {self.reason}"
        )
        if not self.last_lines:
            return f"{head}; it wrote nothing"
        return "\n    ".join([f"{head}; its last lines:", *self.last_lines])


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """Result of a run in a lab.

    Args:
        seconds: Seconds from the start of the first rank to the end of the last rank.
        lines: Last 10,000 lines of each rank's output; `lines[3]` are the lines of rank 3.
        failure: Failure of the rank that failed first; None if no rank failed.
    """

    seconds: float
    lines: tuple[tuple[str, ...], ...]
    failure: RankFailure | None
