"""The copy of a run's journal on the client, which outlives the hosts."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TextIO

COPY = "seen.jsonl"
LOCK = "keeper.lock"


class SeenJournal:
    """What clients have seen of the journal of a run so far.

    Several clients may follow a run, but only one of them keeps the copy, and looks after the run's
    hosts; when it ends, another one takes over.

    Args:
        folder: Folder of the run on this machine.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copy = folder / COPY
        self._position = folder / "position"
        self._lock: TextIO | None = None

    @property
    def text(self) -> str:
        """Text of the journal up to `position`."""
        return self._copy.read_text(encoding="utf-8") if self._copy.exists() else ""

    @property
    def position(self) -> str:
        """Position of the engine after the text, or "" at the beginning."""
        return self._position.read_text() if self._position.exists() else ""

    @property
    def is_kept(self) -> bool:
        """Whether this client keeps the copy."""
        return self._lock is not None

    def try_to_keep(self) -> bool:
        """Become the client that keeps the copy, unless another one is; return whether it is so."""
        if self._lock is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = (self._folder / LOCK).open("a")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                return False
            self._lock = lock
        return True

    def let_go(self) -> None:
        """Let another client keep the copy."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def append(self, text: str, position: str) -> None:
        """Keep new text; a client that is killed in here may see some lines twice.

        Args:
            text: Complete lines of the journal.
            position: Position of the engine after them.
        """
        with self._copy.open("a", encoding="utf-8") as file:
            file.write(text)
        temporary = self._position.with_suffix(".new")
        temporary.write_text(position)
        temporary.replace(self._position)
