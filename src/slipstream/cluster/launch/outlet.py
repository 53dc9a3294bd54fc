"""The output of a launch: a terminal, pipe or file that may fail while the job runs."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import TextIO


class Outlet:
    """A stream that discards text once writing has failed, so that no error ends the job.

    Several threads may write to it; the text of one call stays together.

    Args:
        stream: Text stream for the output.
        lost: Function that is called once, with the reason, after a write has failed.

    Attributes:
        has_no_reader: Whether a write failed because nobody reads the pipe any more.
    """

    def __init__(self, stream: TextIO, lost: Callable[[str], None]) -> None:
        self._stream = stream
        self._lost = lost
        self._is_lost = False
        self._lock = threading.RLock()
        self.has_no_reader = False

    def write(self, text: str) -> None:
        """Write text and flush it."""
        with self._lock:
            try:
                self._stream.write(text)
                self._stream.flush()
            except OSError as error:
                self._lose(error)

    def isatty(self) -> bool:
        """Return whether the stream is a terminal that is still open."""
        return not self._is_lost and self._stream.isatty()

    def columns(self) -> int:
        """Return the width of the terminal in columns, or 0 if it has been closed."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns
        except OSError:  # the next write notices it
            return 0

    def _lose(self, error: OSError) -> None:
        """Redirect a failed stream to /dev/null, because flushing it at exit would fail again."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        with contextlib.suppress(OSError):
            self._stream.flush()
        self._is_lost = True
        self.has_no_reader = isinstance(error, BrokenPipeError)
        self._lost(error.strerror or str(error))
