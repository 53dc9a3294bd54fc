"""New starts of an elastic job: no member was left, so perhaps nobody could write a record."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from slipstream.flight.facts import name_of_signal
from slipstream.flight.launcher import LEFT_EXIT_CODE, LauncherRecord, RankEnd


@dataclass(frozen=True, kw_only=True, slots=True)
class NewStart:
    """A new start of an elastic job after the loss of all members.

    Args:
        wall: Wall clock at the loss of the last member.
        epoch: Number of the epoch in which the last members were lost; 0 if it is unknown.
        ends: Ends of the processes that belonged to this epoch, with slots in place of ranks.
    """

    wall: float
    epoch: int
    ends: tuple[RankEnd, ...]

    def in_words(self) -> str:
        """Return the event in one line, with its time."""
        counts = Counter(map(_in_words, self.ends))
        how = ", ".join(f"{count} x {what}" for what, count in sorted(counts.items()))
        last = f"; epoch {self.epoch} ended with {how}" if how else ""
        return (
            f"{self.moment} No member was left, so the job started again from the newest checkpoint"
            f" of the script, if it has one{last}"
        )

    @property
    def moment(self) -> str:
        """Time of day."""
        return time.strftime("%H:%M:%S", time.localtime(self.wall))


def _in_words(end: RankEnd) -> str:
    status = end.status
    if status is None:
        return f"a lost host {end.host}"
    if status == LEFT_EXIT_CODE:
        return f"a leave after SIGTERM on host {end.host}"
    how = f"exit code {status}" if status > 0 else f"signal {-status} ({name_of_signal(-status)})"
    return f"{how} on host {end.host}"


def _is_own(end: RankEnd) -> bool:
    """Return whether a process ended by itself, or left; the launcher kills stopped ones later."""
    return end.status == LEFT_EXIT_CODE or not end.by_launcher


def new_starts(launcher: LauncherRecord) -> list[NewStart]:
    """Return the new starts of an elastic job, the oldest first."""
    found: list[NewStart] = []
    begin = 0.0
    for seconds in launcher.new_starts:
        own = filter(_is_own, launcher.ranks)
        ended = [end for end in own if begin < (end.seconds or 0.0) <= seconds]
        newest = max((end.epoch for end in ended), default=0)
        found.append(
            NewStart(
                wall=launcher.started + seconds,
                epoch=newest,
                ends=tuple(end for end in ended if end.epoch == newest),
            )
        )
        begin = seconds
    return found
