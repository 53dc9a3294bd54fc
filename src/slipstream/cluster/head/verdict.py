"""The verdict on a failed attempt: whether the job starts again, when, and on which hosts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from slipstream.cluster.head.placement import RetryRules
from slipstream.cluster.launch.launcher import Failure

FailureClass = Literal["permanent", "retryable", "preempted"]

# Exit codes that a process has after SIGTERM, which announces the end of a spot machine.
_PREEMPTED_CODES = (128 + 15,)
# An attempt that lasted so long has made progress, so the next failure counts as the first one.
# Chosen by hand.
WELL_SECONDS = 600.0
# A host that fails sooner was probably never able to start a rank. Chosen by hand.
QUICK_SECONDS = 5.0


def classify(failure: Failure, rules: RetryRules) -> FailureClass:
    """Return the class of a failure, which decides whether the job is started again.

    Args:
        failure: Failure of the job.
        rules: Rules of the job.
    """
    if failure.rank is None:
        return "preempted" if failure.seconds >= QUICK_SECONDS else "retryable"
    if failure.exit_code in _PREEMPTED_CODES:
        return "preempted"
    if failure.exit_code in rules.permanent_codes:
        return "permanent"
    return "retryable"


@dataclass(slots=True)
class RestartCount:
    """The attempts of a run so far.

    Args:
        rules: Rules of the run.

    Attributes:
        num_starts: Number of attempts that have begun.
        num_restarts: Number of new starts that count, because no host was lost.
        bad_hosts: Time on the monotonic clock until which each bad host is not used.
    """

    rules: RetryRules
    num_starts: int = 0
    num_restarts: int = 0
    bad_hosts: dict[str, float] = field(default_factory=dict[str, float])
    _in_a_row: int = 0
    _host_failures: dict[str, int] = field(default_factory=dict[str, int])

    def reason_to_stop(self, failure: Failure) -> str:
        """Return why the job is not started again after a failure; "" if it is."""
        kind = classify(failure, self.rules)
        if kind == "permanent":
            return f"exit code {failure.exit_code} is permanent"
        if kind == "retryable" and self.num_restarts >= self.rules.max_restarts:
            restarts = self.rules.max_restarts
            return (
                f"it was started again {restarts} time{'s' * (restarts != 1)}, as often as allowed"
            )
        return ""

    def count(self, failure: Failure, seconds: float) -> float:
        """Count a failure; return the time in seconds until the next start.

        Args:
            failure: Failure of the attempt.
            seconds: Time in seconds for which the attempt has lasted.
        """
        if seconds >= WELL_SECONDS:
            self._in_a_row = 0
            self._host_failures.clear()
        if classify(failure, self.rules) == "preempted":
            return 0.0
        self.num_restarts += 1
        self._in_a_row += 1
        self._blame(failure.host)
        shortest, longest = self.rules.backoff_seconds
        return min(shortest * 2.0 ** min(self._in_a_row - 1, 30), longest)

    def is_bad(self, host: str) -> bool:
        """Return whether a host is not used now, because failures began there."""
        return time.monotonic() < self.bad_hosts.get(host, 0.0)

    def _blame(self, host: str) -> None:
        self._host_failures = {host: self._host_failures.get(host, 0) + 1}
        if self._host_failures[host] >= self.rules.bad_host_failures:
            self.bad_hosts[host] = time.monotonic() + self.rules.bad_host_seconds
