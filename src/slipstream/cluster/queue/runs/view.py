"""The view of a run that belongs to a job of the queue: everything goes into one file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from slipstream.cluster.launch.display import TerminalDisplay
from slipstream.cluster.launch.labels import Labels


class OutputView:
    """A view that writes the lines of the ranks and what happens to the run to standard output."""

    def __init__(self) -> None:
        self._display = _make_display(Labels([]))

    def stage_begins(self, name: str, host: str, expected_seconds: float | None) -> None:
        """Write nothing."""

    def stage_ends(self, name: str, host: str, seconds: float) -> None:
        """Write how long a stage took."""
        self.note(f"{name}{f' on {host}' if host else ''}: {seconds:.1f} s")

    def note(self, text: str) -> None:
        """Write a remark."""
        self._display.note(text)

    def entry(self, entry: Mapping[str, Any]) -> None:
        """Write an entry of the journal."""
        number = entry.get("slot", entry.get("rank"))
        match entry.get("event"):
            case "line":
                self._display.line(int(number or 0), str(entry["text"]), is_error=False)
            case "started" if "slot" in entry:
                self._display.named(int(entry["slot"]), str(entry["host"]), entry["rank"])
            case "note":
                self.note(str(entry["text"]))
            case "host" if not entry["is_there"]:
                self.note(f"{entry['name']} is gone")
            case "finished" if entry["failure"]:
                self.note(f"{entry['failure']['host']}: {entry['failure']['reason']}")
            case "state":
                self._take_state(entry)
            case _:
                pass

    def restore(self, entry: Mapping[str, Any]) -> None:
        """Take over the names of ranks from an entry that an earlier client has written."""
        if entry.get("hosts"):
            self._take_state(entry)
        elif entry.get("event") == "started" and "slot" in entry:
            self.entry(entry)

    def _take_state(self, entry: Mapping[str, Any]) -> None:
        hosts, slots = entry.get("hosts", ()), entry.get("slots", ())
        if hosts:
            ranks = [host for host, count in zip(hosts, slots, strict=True) for _ in range(count)]
            self._display = _make_display(Labels(ranks, with_hosts=len(hosts) > 1))
        elif entry.get("text"):
            self.note(f"{entry['state']}: {entry['text']}")


def _make_display(labels: Labels) -> TerminalDisplay:
    return TerminalDisplay(labels, sys.stdout, sys.stdout, mode="all", color=False)
