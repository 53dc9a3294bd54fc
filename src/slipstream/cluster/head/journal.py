"""The journal of a run: what happened, and every line of output, as one JSON object per line.

The head writes it. A client follows it from any place, and may do so again after it was killed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from slipstream.cluster.launch.display import JsonDisplay


class Journal:
    """The writer of a journal.

    Args:
        path: File of the journal; a head that takes over appends to it. None for the standard
            output of this process.

    Attributes:
        first_host: Name of the host with rank 0 in the newest attempt; "" before the first one.
    """

    def __init__(self, path: Path | None) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8") if path else sys.stdout
        self.display = JsonDisplay(self._file, mode="all")
        self.first_host = ""

    def state(self, state: str, text: str = "", **facts: object) -> None:
        """Write that the job has another state.

        Args:
            state: State of the job, such as "running".
            text: Reason, or "" (the default).
            facts: Further values, such as the exit code and the hosts of an attempt.
        """
        if facts.get("hosts"):
            self.first_host = cast("Sequence[str]", facts["hosts"])[0]
        self.display.event("state", state=state, text=text, **facts)

    def host(self, name: str, *, is_there: bool) -> None:
        """Write that a host has come or gone; a thread of the switchboard calls this."""
        self.display.event("host", name=name, is_there=is_there)

    def measured(self, attempt: int, seconds: float, rates: Mapping[int, float]) -> None:
        """Write how long an attempt took, and how fast the job was.

        Args:
            attempt: Number of the attempt.
            seconds: Time from the start of its ranks to their end in seconds.
            rates: Samples per second that the job has reported, by the number of hosts.
        """
        self.display.event("measured", attempt=attempt, seconds=round(seconds, 3), rates=rates)

    def moving(self, host: str) -> None:
        """Write that another host must get the head, because the cloud takes its host away."""
        self.display.event("moving", host=host)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def parse_journal(text: str) -> Iterator[dict[str, Any]]:
    """Yield the entries in complete lines of a journal."""
    for line in text.split("\n")[:-1]:
        try:
            entry = json.loads(line)
        except ValueError:  # a disk that was full for a while has cut a line
            continue
        if isinstance(entry, dict):
            yield entry
