"""The slots of an elastic job: each has one process at a time, and a back-off after failures."""

from dataclasses import dataclass, field

from slipstream.cluster.launch.blame import own_error
from slipstream.cluster.launch.launcher import MARGIN_SECONDS, Failure

# All chosen by hand. A process that fails before it has trained for QUICK_SECONDS was of no use.
QUICK_SECONDS = 5.0
# After a process has trained for so long, the next failure of its slot counts as the first one.
WELL_SECONDS = 60.0
MAX_BACKOFF_SECONDS = 60.0
# After a process has trained for so long, an error that it had before may be another one.
LONG_SECONDS = 3600.0


@dataclass(slots=True)
class Backoff:
    """The time until the next start: 1, 2, 4 ... at most 60 seconds.

    Attributes:
        quick_failures: Number of failures in a row, each before five seconds of work.
    """

    quick_failures: int = 0
    _ends: int = field(default=0, init=False)

    def count_end(self, worked_seconds: float, *, is_failure: bool) -> float:
        """Count an end, and return the time in seconds until the next start.

        Args:
            worked_seconds: Time in seconds for which it had worked.
            is_failure: Whether it failed, and did not leave by itself.
        """
        if worked_seconds >= WELL_SECONDS:
            self._ends = 0
        is_quick = is_failure and worked_seconds < QUICK_SECONDS
        self.quick_failures = self.quick_failures + 1 if is_quick else 0
        self._ends += 1
        return min(2.0 ** (min(self._ends, 10) - 1), MAX_BACKOFF_SECONDS)


@dataclass(slots=True)
class SameError:
    """The failures in a row that had one cause: an error that the program raises each time.

    Attributes:
        num_failures: Number of failures.
        since: Time of the first failure, on the monotonic clock.
        last: Time of the last failure.
    """

    num_failures: int = 0
    since: float = 0.0
    last: float = 0.0
    _error: str = field(default="", init=False)

    def count(self, failure: Failure | None, trained_seconds: float, now: float) -> None:
        """Count an end; a signal from outside and the loss of other ranks are no such errors.

        Args:
            failure: Failure of a process, or None if it left by itself.
            trained_seconds: Time in seconds for which the process had trained.
            now: Time of the end.
        """
        if trained_seconds >= LONG_SECONDS:
            self.num_failures, self._error = 0, ""
        if failure is None or not 0 < failure.exit_code < 128:
            return
        error = own_error(failure.last_lines)
        if not error:
            return
        if error != self._error:
            self.num_failures, self.since = 0, now
        self.num_failures += 1
        self.last = now
        self._error = error


@dataclass(kw_only=True, slots=True)
class Slot:
    """A slot of a host: room for one process.

    Args:
        number: Number of the slot in the job, in the order in which slots were found.
        host: Name of the host.
        local_rank: Number of the slot on its host, from 0.

    Attributes:
        port: Port at which the slot's process listens; 0 while no agent has reserved one.
        rank: First rank of the slot's process; None if it joined the job.
        is_member: Whether the slot's process belongs to the job, and does not wait to join it.
        epoch: Number of the newest epoch of the slot's process; 0 for none.
        newest_epoch: Number of the newest epoch of any process of the slot, since the first
            processes of the job have started together.
        is_running: Whether the slot's process was ordered to start and has not ended.
        is_ending: Whether the slot's process was ordered to end.
        is_spent: Whether no process may start in the slot any more.
        started_at: Time of the last start, on the monotonic clock.
        ended_at: Time of the last end of a member; 0 before.
        entered_at: Time at which the slot's process entered its first epoch; 0 before.
        start_at: Earliest time of the next start.
        end_by: Time until which the agent must have reported the end of the slot's process; inf if
            the process was not ordered to end.
        failure: First failure in the slot since a process ran well in it, or None.
    """

    number: int
    host: str
    local_rank: int
    port: int = 0
    rank: int | None = None
    is_member: bool = False
    epoch: int = 0
    newest_epoch: int = 0
    is_running: bool = False
    is_ending: bool = False
    is_spent: bool = False
    started_at: float = 0.0
    ended_at: float = 0.0
    entered_at: float = 0.0
    start_at: float = 0.0
    end_by: float = float("inf")
    failure: Failure | None = None
    backoff: Backoff = field(default_factory=Backoff)
    same_error: SameError = field(default_factory=SameError)

    @property
    def who(self) -> str:
        """Name of the slot's process in messages."""
        what = f"slot {self.number}" if self.rank is None else f"rank {self.rank}"
        return f"{what} on {self.host}"

    def start(self, now: float, rank: int | None) -> None:
        """Take note that a process starts, with a rank or to join the job."""
        self.rank = rank
        self.epoch = 0
        self.is_member = rank is not None
        self.is_running = True
        self.is_ending = False
        self.end_by = float("inf")
        self.started_at = now

    def order_end(self, now: float, grace_seconds: float) -> None:
        """Take note that the process is ordered to end, with a time between SIGTERM and SIGKILL."""
        self.is_ending = True
        self.end_by = now + grace_seconds + MARGIN_SECONDS

    def enter(self, epoch: int, now: float) -> None:
        """Take note that the process has entered an epoch."""
        if self.epoch == 0:
            self.entered_at = now
        self.epoch = self.newest_epoch = epoch

    def trained_seconds(self, now: float) -> float:
        """Return for how long the process has trained, in seconds; 0 before its first epoch.

        A program may take a minute to import its modules, and then fail at its first line. So the
        time since its start tells little.
        """
        return now - self.entered_at if self.epoch > 0 else 0.0

    def end(self, now: float, failure: Failure | None) -> float:
        """Take note of an end; return the time in seconds until the next start.

        Args:
            now: Time of the end.
            failure: Failure of the process, or None if it left by itself.
        """
        trained = self.trained_seconds(now)
        self.is_running = False
        if self.is_member:
            self.ended_at = now
        if trained >= WELL_SECONDS:
            self.failure = None
        self.failure = self.failure or failure
        self.same_error.count(failure, trained, now)
        delay = self.backoff.count_end(trained, is_failure=failure is not None)
        self.start_at = now + delay
        return delay
