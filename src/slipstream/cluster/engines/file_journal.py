"""The journal of a run in a file that this machine sees."""

from __future__ import annotations

import time
from pathlib import Path

from slipstream.cluster.engines.protocol import JournalPart

LOOK_SECONDS = 0.02


def read_file_journal(path: Path, position: str, seconds: float) -> JournalPart:
    """Return the complete lines of a journal after a position.

    Args:
        path: File of the journal, which need not exist yet.
        position: Position from the last call, or "" for the beginning.
        seconds: Longest time in seconds to wait for a new line.
    """
    offset = int(position or 0)
    until = time.monotonic() + seconds
    while True:
        data = _read_from(path, offset)
        data = data[: data.rfind(b"\n") + 1]
        if data or time.monotonic() >= until:
            text = data.decode(errors="replace")
            return JournalPart(text=text, position=str(offset + len(data)))
        time.sleep(LOOK_SECONDS)


def _read_from(path: Path, offset: int) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()
