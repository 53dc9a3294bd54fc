"""What a launcher knows of a job: how each rank ended, and what happened to the launcher itself."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

FORMAT = "slipstream launcher record"
VERSION = 1
LEFT_EXIT_CODE = (
    128 + signal.SIGTERM
)  # exit code of a process that left an elastic job after SIGTERM


@dataclass(frozen=True, kw_only=True, slots=True)
class RankEnd:
    """The life of a rank, as the launcher saw it.

    Args:
        rank: Rank of the process.
        host: Name of the host in the launcher's list.
        pid: Number of the process; for a program in a wrapper, the wrapper's.
        status: Exit code, or the negative number of the signal that ended it; None if unknown.
        seconds: Seconds from the launcher's start to the end; None if unknown.
        by_launcher: Whether the launcher ended the rank, because another rank had failed.
        state: State of the process before the launcher ended it: "running", "sleeping",
            "waiting for a device", "stopped", "traced"; "" if unknown.
        oom_kills: Number of processes that the kernel killed on the host because memory was short,
            from the start of the job to this rank's death by SIGKILL; None if unknown.
        last_lines: Last lines of output of a rank that the launcher did not end.
        epoch: Number of the last epoch of the process in an elastic job, where `rank` is the number
            of the process's slot; 0 if it belonged to none.
    """

    rank: int
    host: str
    pid: int | None = None
    status: int | None = None
    seconds: float | None = None
    by_launcher: bool = False
    state: str = ""
    oom_kills: int | None = None
    last_lines: tuple[str, ...] = ()
    epoch: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LauncherRecord:
    """The launcher's account of a job.

    Args:
        command: Program of the ranks and its arguments.
        started: Wall clock of the launcher at its start.
        seconds: Seconds that the job took.
        ranks: Lives of the ranks.
        first: Rank that ended first with an error; None if no rank did.
        failed_host: Host that failed as a whole, or "".
        reason: Reason why the host failed, or "".
        signal: Name of the signal that the launcher received before a rank failed, or "".
        new_starts: Seconds from the launcher's start to each time at which an elastic job had lost
            all members, and so started again, in order.
        version: Version of the format.
        format: Name of the format.
    """

    command: tuple[str, ...]
    started: float
    seconds: float
    ranks: tuple[RankEnd, ...]
    first: int | None = None
    failed_host: str = ""
    reason: str = ""
    signal: str = ""
    new_starts: tuple[float, ...] = ()
    version: int = VERSION
    format: str = FORMAT

    def in_epoch(self, number: int, slots: Sequence[int], wall: float) -> LauncherRecord:
        """Return what is known of one epoch of an elastic job, with the ranks of that epoch.

        Args:
            number: Number of the epoch.
            slots: Slot of each of its ranks.
            wall: Wall clock at the fault. If all processes were lost, the job has started again
                and has had several epochs with this number; then the nearest one counts.
        """
        ranks = {slot: rank for rank, slot in enumerate(slots) if slot >= 0}
        ends: dict[int, RankEnd] = {}
        for end in self.ranks:
            if end.epoch != number or end.rank not in ranks:
                continue
            rank = ranks[end.rank]
            known = ends.get(rank)
            if known is None or self._distance(end, wall) < self._distance(known, wall):
                ends[rank] = replace(end, rank=rank)
        found = tuple(ends[rank] for rank in sorted(ends))
        bad = [end for end in found if end.status and not end.by_launcher]
        is_last = number == max((end.epoch for end in self.ranks), default=number)
        return replace(
            self,
            ranks=found,
            first=min(bad, key=lambda end: end.seconds or 0.0).rank if bad else None,
            failed_host=self.failed_host if is_last else "",
            reason=self.reason if is_last else "",
            signal=self.signal if is_last else "",
        )

    def in_last_epoch(self) -> LauncherRecord:
        """Return what is known of the last epoch of an elastic job, with slots for its ranks."""
        last = max(self.ranks, key=lambda end: end.seconds or 0.0, default=None)
        if last is None or last.epoch == 0:
            return self
        slots = range(1 + max(end.rank for end in self.ranks))
        return self.in_epoch(last.epoch, slots, self.started + (last.seconds or 0.0))

    def _distance(self, end: RankEnd, wall: float) -> float:
        return abs(self.started + (end.seconds or 0.0) - wall)
