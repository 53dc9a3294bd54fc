"""A save of one rank, and its wait for the other ranks."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slipstream.train.checkpoint.damage import CheckpointError
from slipstream.train.checkpoint.manifest import file_name, folder_of
from slipstream.train.checkpoint.storage import TEMPORARY, Storage, joined

# Time in which all ranks must write their parts, if nothing else is said. Chosen by hand.
TIMEOUT_SECONDS = 1800.0
# After the end of the main thread, a rank waits no longer than this for a change of any file of the
# save. The processes of a job end within seconds of each other, unless one of them was killed.
LAST_SECONDS = 30.0
# The same if an error or Ctrl-C has ended the main thread, and a rank has not begun to write: a
# launcher interrupts all ranks at once, so it will not. Chosen by hand.
INTERRUPTED_SECONDS = 5.0
# A storage that fails for no longer than this while ranks wait for each other is asked again, as
# network file systems and object stores recover. Chosen by hand.
STORAGE_SECONDS = 10.0
_FIRST_POLL_SECONDS = 0.002

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveJob:
    """A save of one rank, without its data.

    Args:
        storage: Storage of all checkpoints.
        step: Training step after which the state was copied.
        time: Time of the copy in seconds since 1970 (UTC).
        save: Identity of the save, equal on all ranks and different from that of any other save.
        rank: Rank of this process.
        num_ranks: Number of ranks that save.
        keep: Number of whole checkpoints to keep; None keeps all.
        timeout_seconds: Longest wait for the other ranks.
        lost: Function that returns the ranks that are known to be lost, with the reasons (default:
            none is ever known).
    """

    storage: Storage
    step: int
    time: float
    save: str
    rank: int
    num_ranks: int
    keep: int | None
    timeout_seconds: float
    lost: Callable[[], Mapping[int, str]] = field(default=dict[int, str])

    def note_of(self, rank: int) -> str:
        """Return the path of the note of a rank."""
        name = file_name(rank, self.num_ranks, self.save, "json")
        return joined(folder_of(self.step), name)

    @property
    def end_note(self) -> str:
        """Path of the note by which rank 0 tells why the save has failed."""
        return joined(folder_of(self.step), f"failed.{self.save}.json")

    def files(self) -> dict[str, int]:
        """Return the names of all files of the save; for those being written, their sizes."""
        folder = folder_of(self.step)
        names = [name for name in self.storage.names(folder) if f".{self.save}." in name]
        return {
            name: (self.storage.size(joined(folder, name)) or 0) if name.endswith(TEMPORARY) else 0
            for name in names
        }

    def not_whole(self, reason: str) -> CheckpointError:
        """Return the error of a save that has not made the checkpoint whole."""
        return CheckpointError(
            f"the checkpoint of step {self.step} in {self.storage.url} is not whole: {reason}"
        )


def wait_for(
    job: SaveJob, is_done: Callable[[], bool], missing: Callable[[], Sequence[int]], what: str
) -> None:
    """Block until something is done by other ranks.

    Args:
        job: Save that this rank takes part in.
        is_done: Function that looks into the storage for it.
        missing: Function that returns the ranks that have not done it.
        what: Predicate of the sentence about a missing rank, such as "did not write its part".

    Raises:
        CheckpointError: A missing rank is lost, or has not done it in time.
    """
    start = time.monotonic()
    look = _Look(is_done)
    last: _LastWait | None = None
    pause = _FIRST_POLL_SECONDS
    while True:
        lost = dict(job.lost())  # before the look, which finds what they have written last
        if look.is_done():
            return
        for rank in missing():
            if rank in lost:
                error = job.not_whole(f"rank {rank}, which {what}, {lost[rank]}")
                _log.warning("%s", error)  # an elastic job has no use for this Checkpointer now
                raise error
        names = f"rank {', '.join(map(str, missing()))}"
        if time.monotonic() > start + job.timeout_seconds:
            raise job.not_whole(
                f"{names} {what} in {job.timeout_seconds:.0f} s; all ranks must save to one folder"
                " that all see"
            )
        if not threading.main_thread().is_alive():
            last = last or _LastWait(job)
            last.check(missing(), f"{names} {what}")
        time.sleep(pause)
        pause = min(2 * pause, job.storage.poll_seconds)


class _Look:
    """Looks into a storage that may fail for some time.

    Args:
        is_done: Function that looks into the storage.
    """

    def __init__(self, is_done: Callable[[], bool]) -> None:
        self._is_done = is_done
        self._fails_since: float | None = None

    def is_done(self) -> bool:
        """Return what the function returns; False if the storage fails now."""
        try:
            done = self._is_done()
        except OSError:
            now = time.monotonic()
            self._fails_since = self._fails_since or now
            if now > self._fails_since + STORAGE_SECONDS:
                raise
            return False
        self._fails_since = None
        return done


class _LastWait:
    """The wait of a process whose main thread has ended.

    It ends if no file of the save changes any more, because ranks that still write can be seen.

    Args:
        job: Save that the process takes part in.
    """

    def __init__(self, job: SaveJob) -> None:
        self._job = job
        self._files: Mapping[str, int] = {}
        self._changed = time.monotonic()

    def check(self, missing: Sequence[int], what: str) -> None:
        """Raise CheckpointError if the wait for the missing ranks is most likely in vain."""
        files, now = self._look(), time.monotonic()
        if files != self._files:
            self._files, self._changed = files, now
        absent = [rank for rank in missing if not self._has_begun(rank)]
        is_interrupted = hasattr(sys, "last_type")  # Python sets it if an error ends the program
        is_soon = is_interrupted and absent and self._job.storage.shows_begun
        seconds = INTERRUPTED_SECONDS if is_soon else LAST_SECONDS
        if now <= self._changed + seconds:
            return
        reason = f"{what}, and no file of it has changed for {seconds:.0f} s"
        if absent:
            reason += (
                f"; rank {', '.join(map(str, absent))} has most likely ended without a save() of"
                " this step"
            )
        raise self._job.not_whole(
            f"{reason}. The main thread of rank {self._job.rank} has ended, so it waits no longer"
        )

    def _look(self) -> Mapping[str, int]:
        try:
            return self._job.files()
        except OSError:
            return self._files  # as if nothing had changed

    def _has_begun(self, rank: int) -> bool:
        begin = file_name(rank, self._job.num_ranks, self._job.save, "")
        return any(name.startswith(begin) for name in self._files)
