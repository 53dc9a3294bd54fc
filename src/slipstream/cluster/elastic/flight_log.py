"""The launcher's part of the flight records of an elastic job; slots have the place of ranks."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from pathlib import Path

from slipstream.cluster.elastic.listeners import ElasticDisplay
from slipstream.cluster.launch.flight_log import FlightLog
from slipstream.cluster.launch.job import Job
from slipstream.cluster.launch.launcher import Failure
from slipstream.cluster.launch.lines import NUM_LAST_LINES
from slipstream.errors import reason_of
from slipstream.flight.codec import as_json
from slipstream.flight.files import drop_excess, epoch_folders, epoch_of_crash, launcher_path
from slipstream.flight.launcher import LEFT_EXIT_CODE, LauncherRecord, RankEnd

# Ends of processes that are remembered: the first ones and the newest ones.
_FIRST_ENDS = 64
_NEWEST_ENDS = 192
_MOST_NEW_STARTS = 4096
_CHECK_SECONDS = 1.0


class ElasticFlightLog(FlightLog):
    """A display that also notes how the processes of an elastic job end.

    `launcher.json` is written whenever a process has failed, so that a fault can be explained while
    the job goes on.

    Args:
        shown: Display to which everything is passed on.
        folder: Folder for the records of the job, which exists.
        job: Job of the processes.
    """

    def __init__(self, shown: ElasticDisplay, folder: Path, job: Job) -> None:
        super().__init__(shown, folder, job)
        self._elastic = shown
        self._first: list[RankEnd] = []
        self._newest: deque[RankEnd] = deque(maxlen=_NEWEST_ENDS)
        self._new_starts: list[float] = []
        self._write_at: float | None = None  # time from which launcher.json is due

    # ---- what only this display receives ----

    def ended(self, slot: int, status: int | None, epoch: int, *, by_launcher: bool) -> None:
        """Take note that the process of a slot has ended.

        Args:
            slot: Number of the slot.
            status: Exit code or negative number of a signal; None if its host was lost.
            epoch: Number of the last epoch of the process; 0 if it belonged to none.
            by_launcher: Whether the launcher has ended the process.
        """
        end = replace(
            self._ends.pop(slot, RankEnd(rank=slot, host="")),
            status=status,
            seconds=round(time.monotonic() - self._began_at, 3),
            epoch=epoch,
            by_launcher=by_launcher or status == LEFT_EXIT_CODE,
            last_lines=() if by_launcher else tuple(self._lines.pop(slot, ())),
        )
        if status == 0:
            return
        if len(self._first) < _FIRST_ENDS:
            self._first.append(end)
        else:
            self._newest.append(end)
        self._write_at = time.monotonic() + _CHECK_SECONDS

    def lost_all(self) -> None:
        """Take note that no member is left, so the job starts again."""
        seconds = round(time.monotonic() - self._began_at, 3)
        self._new_starts = [*self._new_starts, seconds][-_MOST_NEW_STARTS:]

    # ---- the display ----

    def named(self, rank: int, host: str, first_rank: int | None) -> None:
        """Show that a process starts in a slot."""
        self._lines[rank] = deque(maxlen=NUM_LAST_LINES)
        self._elastic.named(rank, host, first_rank)

    def running(self, count: int) -> None:
        """Show how many processes run."""
        self._elastic.running(count)
        self._write_if_due()

    def line(self, rank: int, text: str, *, is_error: bool) -> None:
        """Keep the last lines of a process, and show the line."""
        super().line(rank, text, is_error=is_error)
        self._write_if_due()

    def exited(self, rank: int, host: str, status: int) -> None:
        """Show that a process has ended."""
        self._shown.exited(rank, host, status)

    def finished(self, failure: Failure | None) -> None:
        """Write `launcher.json` if there were faults, and say how to read the records."""
        self._remove_empty_files()
        self._make_folders_of_crashes()
        ends = (*self._first, *self._newest)
        has_lost = any(end.epoch and not end.by_launcher for end in ends)  # perhaps all at once
        if has_lost or epoch_folders(self._folder) or any(self._folder.glob("rank-*.json")):
            self._try_to_drop()
            self._write(failure)
        super().finished(failure)

    def _write_if_due(self) -> None:
        now = time.monotonic()
        if self._write_at is None or now < self._write_at:
            return
        if epoch_folders(self._folder):
            self._write_at = None
            self._write(None)
        else:  # the survivors have not written their records yet
            self._write_at = now + _CHECK_SECONDS

    def _write(self, failure: Failure | None) -> None:
        self._try_to_write(launcher_path(self._folder), as_json(self._record(failure)))

    def _record(self, failure: Failure | None) -> LauncherRecord:
        ends = (*self._first, *self._newest)
        if failure is not None and failure.after_signal:
            ends = tuple(replace(end, by_launcher=False) for end in ends)
        bad = [end for end in ends if end.status and not end.by_launcher]
        return replace(self._record_of(ends, bad, failure), new_starts=tuple(self._new_starts))

    @property
    def _what_happened(self) -> str:
        count = len(self._new_starts)
        if count == 0:
            return super()._what_happened
        return (
            f"there were faults; {count} time{'s' * (count > 1)} no member was left and the job"
            " started again"
        )

    def _remove_empty_files(self) -> None:
        """Remove the files for crashes that have not happened; no process runs any more."""
        for path in self._folder.glob("*.crash.txt"):
            if path.stat().st_size == 0:
                path.unlink(missing_ok=True)

    def _make_folders_of_crashes(self) -> None:
        """Make the folders of epochs of which no rank is left that could write a record."""
        for path in self._folder.glob("epoch-*.rank-*.crash.txt"):
            epoch_of_crash(path).mkdir(exist_ok=True)

    def _try_to_drop(self) -> None:
        try:
            drop_excess(self._folder)
        except OSError as error:
            self.note(f"records in {self._folder} cannot be removed: {reason_of(error)}")
