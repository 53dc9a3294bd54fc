"""The launcher's part of flight records: the folder of a job, and `launcher.json` in it.

The ranks write their records into the folder. Agents of other hosts send the records of their ranks
here. If the job succeeds and no rank had a fault, the folder is removed again.
"""

from __future__ import annotations

import re
import signal
import time
from collections import defaultdict, deque
from dataclasses import replace
from pathlib import Path

from slipstream.cluster.launch.job import Job
from slipstream.cluster.launch.launcher import Display, Failure
from slipstream.cluster.launch.lines import NUM_LAST_LINES
from slipstream.errors import reason_of
from slipstream.flight.codec import as_json, write_atomically
from slipstream.flight.files import DEFAULT_FOLDER, launcher_path
from slipstream.flight.launcher import LauncherRecord, RankEnd
from slipstream.flight.process import shown_command
from slipstream.settings import Settings

_FILE = re.compile(
    r"(?:epoch-\d{4,}-\w+/)?rank-\d{4,}\.(?:json|crash\.txt)"
    r"|epoch-\d{4,}-\w+\.rank-\d{4,}\.crash\.txt"
)
_BY_LAUNCHER = (-signal.SIGTERM, -signal.SIGKILL)
_MOST_FOLDERS = 100


def make_flight_folder(job: Job) -> Path:
    """Make the folder for the flight records of a job.

    The folder is named after the program and the time. It lies in the folder that
    SLIPSTREAM_FLIGHT_DIR names, otherwise in `slipstream-flight` in the working directory.

    Raises:
        OSError: the folder cannot be made.
        ConfigError: an environment variable has a value that is not allowed.
    """
    chosen = Settings.from_environment(job.effective_environ).flight_dir
    cwd = (
        Path(job.cwd) if Path(job.cwd).is_dir() else Path.cwd()
    )  # it may exist on other hosts only
    parent = cwd.absolute() / (chosen or DEFAULT_FOLDER)
    name = re.sub(r"[^\w.-]", "_", Path(job.program[0]).stem) or "job"
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    parent.mkdir(parents=True, exist_ok=True)
    for number in range(_MOST_FOLDERS):
        folder = parent / (stem if number == 0 else f"{stem}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:  # another job of this second
            continue
        return folder
    raise FileExistsError(f"there are {_MOST_FOLDERS} folders {parent / stem}")


class FlightLog:
    """A display that also notes how the ranks end, and writes `launcher.json` after a failure.

    Args:
        shown: Display to which everything is passed on.
        folder: Folder for the records of the job, which exists.
        job: The job.
    """

    def __init__(self, shown: Display, folder: Path, job: Job) -> None:
        self._shown = shown
        self._folder = folder
        self._job = job
        self._started = time.time()
        self._began_at = time.monotonic()
        self._ends: dict[int, RankEnd] = {}
        self._lines: defaultdict[int, deque[str]] = defaultdict(
            lambda: deque(maxlen=NUM_LAST_LINES)
        )
        self._failed_at: float | None = None  # seconds from the start to the first bad end

    # ---- what only this display receives ----

    def noticed(self, rank: int, state: str, oom_kills: int | None) -> None:
        """Take note of the state of a rank before it is ended, or of kills for lack of memory."""
        end = self._ends.get(rank)
        if end is not None:
            kills = end.oom_kills if oom_kills is None else oom_kills
            self._ends[rank] = replace(end, state=state or end.state, oom_kills=kills)

    def take_file(self, name: str, text: str) -> None:
        """Keep a file of a rank of another host, unless the hosts share the folder."""
        path = self._folder / name
        if _FILE.fullmatch(name) and not path.exists():
            self._try_to_write(path, text)

    # ---- the display ----

    def line(self, rank: int, text: str, *, is_error: bool) -> None:
        """Keep the last lines of a rank, and show the line."""
        self._lines[rank].append(text)
        self._shown.line(rank, text, is_error=is_error)

    def progress(self, rank: int, text: str) -> None:
        """Show a progress line."""
        self._shown.progress(rank, text)

    def step(self, rank: int, number: int) -> None:
        """Pass on the step of a rank."""
        self._shown.step(rank, number)

    @property
    def has_no_reader(self) -> bool:
        """Whether nobody reads the output of the display `shown` any more."""
        return self._shown.has_no_reader

    def started(self, rank: int, host: str, pid: int) -> None:
        """Take note that a rank has started."""
        self._ends[rank] = RankEnd(rank=rank, host=host, pid=pid)
        self._shown.started(rank, host, pid)

    def exited(self, rank: int, host: str, status: int) -> None:
        """Take note of the end of a rank."""
        seconds = time.monotonic() - self._began_at
        self._ends[rank] = replace(
            self._ends.get(rank, RankEnd(rank=rank, host=host)),
            status=status,
            seconds=round(seconds, 3),
            by_launcher=self._is_by_launcher(status, seconds),
        )
        if status != 0 and self._failed_at is None:
            self._failed_at = seconds
        self._shown.exited(rank, host, status)

    def note(self, text: str) -> None:
        """Show a remark of the launcher."""
        self._shown.note(text)

    def finished(self, failure: Failure | None) -> None:
        """Write `launcher.json` after a failure, and say how to read the records."""
        self._shown.finished(failure)
        self._remove_empty_files()
        if self.remove_if_empty():
            return
        if failure is None:
            self.note(f"{self._what_happened}: slipstream explain {self._shown_path}")
        else:
            self._try_to_write(launcher_path(self._folder), as_json(self._record(failure)))
            self.note(f"explain it: slipstream explain {self._shown_path}")

    @property
    def _what_happened(self) -> str:
        """The faults of a job that has succeeded, in words."""
        return "there were faults, but the job went on"

    @property
    def _shown_path(self) -> Path:
        """The folder, relative to the working directory if it lies in there."""
        here = Path.cwd()
        folder = self._folder
        is_inside = here != Path("/") and folder.is_relative_to(here)
        return folder.relative_to(here) if is_inside else folder

    def _is_by_launcher(self, status: int, seconds: float) -> bool:
        """Return whether the launcher ended the rank; SIGKILL comes only after the grace period."""
        if self._failed_at is None or status not in _BY_LAUNCHER:
            return False
        grace = self._job.grace_seconds if status == -signal.SIGKILL else 0.0
        return seconds - self._failed_at >= grace

    def _record(self, failure: Failure) -> LauncherRecord:
        ends = tuple(
            replace(
                end,
                by_launcher=end.by_launcher and not failure.after_signal,
                last_lines=() if end.by_launcher else tuple(self._lines[rank]),
            )
            for rank, end in sorted(self._ends.items())
        )
        return self._record_of(ends, [end for end in ends if end.status], failure)

    def _record_of(
        self, ends: tuple[RankEnd, ...], bad: list[RankEnd], failure: Failure | None
    ) -> LauncherRecord:
        """Return the record of the launcher.

        Args:
            ends: Ends of the ranks.
            bad: Ends of those that failed by themselves.
            failure: Failure of the job, or None.
        """
        first = min(bad, key=lambda end: end.seconds or 0.0, default=None)
        host = failure if failure is not None and failure.rank is None else None
        return LauncherRecord(
            command=shown_command(self._job.program),
            started=self._started,
            seconds=round(time.monotonic() - self._began_at, 3),
            ranks=ends,
            first=None if first is None else first.rank,
            failed_host="" if host is None else host.host,
            reason="" if host is None else host.reason,
            signal="" if failure is None else failure.after_signal,
        )

    def _remove_empty_files(self) -> None:
        """Remove the files for crashes that have not happened; their ranks were killed."""
        if any(end.status for end in self._ends.values()):
            return
        for path in self._folder.glob("rank-*.crash.txt"):
            if path.stat().st_size == 0:
                path.unlink(missing_ok=True)

    def remove_if_empty(self) -> bool:
        """Remove the folder unless it has a file; return whether it is gone."""
        for folder in (self._folder, self._folder.parent):
            try:
                folder.rmdir()
            except FileNotFoundError:  # the last rank has removed it
                continue
            except OSError:  # it has files, or folders of other jobs
                break
        return not self._folder.exists()

    def _try_to_write(self, path: Path, text: str) -> None:
        try:
            write_atomically(path, text)
        except OSError as error:
            self.note(f"{path} cannot be written: {reason_of(error)}")
