"""Result of a run in a lab."""

import signal
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFailure:
    """The first failure of a rank.

    Args:
        rank: Number of the rank.
        host: Host on which the rank ran.
        status: Exit code, or the negative number of the signal that ended the rank; None if the
            rank was still running.
        seconds: Seconds from the start of the run to the failure.
        last_lines: Last lines that the rank wrote, at most twenty.
    """

    rank: int
    host: int
    status: int | None
    seconds: float
    last_lines: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Description of the failure."""
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
    """Result of a run.

    Args:
        seconds: Seconds from the start of the first rank to the end of the last.
        lines: Last 10,000 lines that each rank wrote, by rank.
        failure: Failure of the rank that failed first, or None.
    """

    seconds: float
    lines: tuple[tuple[str, ...], ...]
    failure: RankFailure | None
