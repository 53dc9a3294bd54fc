"""Files that keep the output of each rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, TextIO

from slipstream.cluster.elastic.listeners import ElasticDisplay
from slipstream.cluster.launch.launcher import Display, Failure
from slipstream.errors import UsageError


class OutputFiles:
    """A display that also writes the lines of each rank to FOLDER/rank.N/stdout and stderr.

    Args:
        shown: Display to which all lines are passed on.
        folder: Folder for the files; it is created if missing, and old files are overwritten.
        num_ranks: Number of ranks of the job; rank numbers in file names are padded to one width.

    Raises:
        UsageError: the files cannot be created.
    """

    def __init__(self, shown: Display, folder: Path, num_ranks: int) -> None:
        self._shown = shown
        self._folder = folder
        self._is_complete = True
        width = len(str(num_ranks - 1))
        try:
            self._files = {
                rank: _open_pair(folder / f"rank.{rank:0{width}}", "w") for rank in range(num_ranks)
            }
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"--output-filename is {str(folder)!r}, where no files can be created:"
                f" {error.strerror}: {error.filename}"
            ) from error

    def line(self, rank: int, text: str, *, is_error: bool) -> None:
        """Write a line to its file and show it; report the first write that fails."""
        if rank in self._files:  # files of a process of an elastic job may have failed to open
            file = self._files[rank][is_error]
            self._try(lambda: print(text, file=file, flush=True))
        self._shown.line(rank, text, is_error=is_error)

    @property
    def has_no_reader(self) -> bool:
        """Whether nobody reads the output of the display `shown` any more."""
        return self._shown.has_no_reader

    def progress(self, rank: int, text: str) -> None:
        """Show a progress line, but do not write it; when it ends, `line` writes its last state."""
        self._shown.progress(rank, text)

    def step(self, rank: int, number: int) -> None:
        """Pass on the step of a rank."""
        self._shown.step(rank, number)

    def started(self, rank: int, host: str, pid: int) -> None:
        """Show that a rank has started."""
        self._shown.started(rank, host, pid)

    def exited(self, rank: int, host: str, status: int) -> None:
        """Show that a rank has ended."""
        self._shown.exited(rank, host, status)

    def note(self, text: str) -> None:
        """Show a remark of the launcher."""
        self._shown.note(text)

    def finished(self, failure: Failure | None) -> None:
        """Show how the job ended, and close the files."""
        for rank in self._files:
            self._close(rank)
        self._shown.finished(failure)

    def _close(self, rank: int) -> None:
        for file in self._files[rank]:
            self._try(file.close)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            if self._is_complete:
                self.note(
                    f"lines are missing in {self._folder}, which cannot be written"
                    f" ({error.strerror}); the job goes on"
                )
            self._is_complete = False


class ElasticOutputFiles(OutputFiles):
    """Files that keep the output of each process of an elastic job.

    The lines of the first ranks are in FOLDER/rank.N, and the lines of all processes that join in
    slot N are in FOLDER/slot.N.

    Args:
        shown: Display to which all lines are passed on.
        folder: Folder for the files; it is created if missing.

    Raises:
        UsageError: the folder cannot be created.
    """

    def __init__(self, shown: ElasticDisplay, folder: Path) -> None:
        super().__init__(shown, folder, 0)
        self._elastic = shown
        self._is_known: set[Path] = set()

    def named(self, rank: int, host: str, first_rank: int | None) -> None:
        """Open the files of the next process of slot `rank`; append to those of its predecessor."""
        if rank in self._files:
            self._close(rank)
            del self._files[rank]
        name = f"slot.{rank}" if first_rank is None else f"rank.{first_rank}"
        path = self._folder / name
        mode: Literal["a", "w"] = "a" if path in self._is_known else "w"
        self._is_known.add(path)
        self._try(lambda: self._files.update({rank: _open_pair(path, mode)}))
        self._elastic.named(rank, host, first_rank)

    def running(self, count: int) -> None:
        """Show the number of processes."""
        self._elastic.running(count)


def _open_pair(folder: Path, mode: Literal["a", "w"]) -> tuple[TextIO, TextIO]:
    folder.mkdir(parents=True, exist_ok=True)
    return _open(folder / "stdout", mode), _open(folder / "stderr", mode)


def _open(path: Path, mode: Literal["a", "w"]) -> TextIO:
    return path.open(mode, encoding="utf-8")
