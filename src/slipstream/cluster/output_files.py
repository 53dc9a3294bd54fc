"""What each rank writes, in files of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from slipstream.cluster.launcher import Display, Failure
from slipstream.errors import UsageError


class OutputFiles:
    """Writes the lines of each rank to FOLDER/rank.N/stdout and stderr, and shows them as before.

    Args:
        shown: who shows them.
        folder: made where it is missing; files of an earlier job are overwritten.
        num_ranks: of the job; their numbers are filled with zeros to one width.

    Raises:
        UsageError: the files cannot be made.
    """

    def __init__(self, shown: Display, folder: Path, num_ranks: int) -> None:
        self._shown = shown
        self._folder = folder
        self._is_whole = True
        width = len(str(num_ranks - 1))
        try:
            self._files = [
                [_file(folder / f"rank.{rank:0{width}}" / name) for name in ("stdout", "stderr")]
                for rank in range(num_ranks)
            ]
        except OSError as error:
            raise UsageError(
                f"--output-filename is {str(folder)!r}, where no files can be made: {error}"
            ) from error

    def line(self, rank: int, text: str, *, is_error: bool) -> None:
        """Write a line, and show it; where there is no room for it, say so once."""
        file = self._files[rank][is_error]
        self._try(lambda: print(text, file=file, flush=True))
        self._shown.line(rank, text, is_error=is_error)

    @property
    def has_no_reader(self) -> bool:
        """Whether nobody reads what is shown."""
        return self._shown.has_no_reader

    def progress(self, rank: int, text: str) -> None:
        """Show it: its last state comes as a line."""
        self._shown.progress(rank, text)

    def started(self, rank: int, host: str, pid: int) -> None:
        """Show it."""
        self._shown.started(rank, host, pid)

    def exited(self, rank: int, host: str, status: int) -> None:
        """Show it."""
        self._shown.exited(rank, host, status)

    def note(self, text: str) -> None:
        """Show it."""
        self._shown.note(text)

    def finished(self, failure: Failure | None) -> None:
        """Show it, and close the files."""
        for files in self._files:
            for each in files:
                self._try(each.close)
        self._shown.finished(failure)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            if self._is_whole:
                self.note(
                    f"lines are missing in {self._folder}, which cannot be written"
                    f" ({error.strerror}); the job goes on"
                )
            self._is_whole = False


def _file(path: Path) -> TextIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("w", encoding="utf-8")
