"""The copy of a run's journal on the client, which outlives the hosts."""

from __future__ import annotations

from pathlib import Path

COPY = "seen.jsonl"


class SeenJournal:
    """What clients have seen of the journal of a run so far.

    Args:
        folder: Folder of the run on this machine.
    """

    def __init__(self, folder: Path) -> None:
        self._copy = folder / COPY
        self._position = folder / "position"

    @property
    def text(self) -> str:
        """Text of the journal up to `position`."""
        return self._copy.read_text(encoding="utf-8") if self._copy.exists() else ""

    @property
    def position(self) -> str:
        """Position of the engine after the text, or "" at the beginning."""
        return self._position.read_text() if self._position.exists() else ""

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
