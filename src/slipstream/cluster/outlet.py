"""Where a launch is shown: a terminal that may be closed, a pipe that nobody reads, a full disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TextIO


class Outlet:
    """A stream that goes nowhere once it cannot be written: no error ends the job.

    Args:
        stream: the text stream that is written.
        lost: called once with the reason, after what could not be written has been dropped.

    Attributes:
        has_no_reader: it was a pipe, whose reader is gone.
    """

    def __init__(self, stream: TextIO, lost: Callable[[str], None]) -> None:
        self._stream = stream
        self._lost = lost
        self._is_lost = False
        self.has_no_reader = False

    def write(self, text: str) -> None:
        """Write text, and leave none of it in memory."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    def isatty(self) -> bool:
        """Return whether it is a terminal that is still there."""
        return not self._is_lost and self._stream.isatty()

    def columns(self) -> int:
        """Return the width of the terminal that it is."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns
        except OSError:  # it was closed just now, and is noticed with the next text
            return 0

    def _lose(self, error: OSError) -> None:
        """Let the stream write to nowhere; what it still holds would fail again at the end."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        with contextlib.suppress(OSError):
            self._stream.flush()
        self._is_lost = True
        self.has_no_reader = isinstance(error, BrokenPipeError)
        self._lost(error.strerror or str(error))
