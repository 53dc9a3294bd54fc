"""Files that keep the output of each rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from slipstream.cluster.launcher import Display, Failure
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
            self._files = [
                [_file(folder / f"rank.{rank:0{width}}" / name) for name in ("stdout", "stderr")]
                for rank in range(num_ranks)
            ]
        except OSError as error:
            raise UsageError(
                f"--output-filename is {str(folder)!r}, where no files can be created:"
                f" {error.strerror}: {error.filename}"
            ) from error

    def line(self, rank: int, text: str, *, is_error: bool) -> None:
        """Write a line to its file and show it; report the first write that fails."""
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
        for files in self._files:
            for file in files:
                self._try(file.close)
        self._shown.finished(failure)

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


def _file(path: Path) -> TextIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("w", encoding="utf-8")
