"""The views of a run: stages and output lines on a terminal, or JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from slipstream.cli.cluster.stage_line import StageLine
from slipstream.cluster.launch.display import TerminalDisplay
from slipstream.cluster.launch.labels import Labels
from slipstream.cluster.launch.launcher import AlsoFailed, Failure


class TerminalView:
    """A view for people: output on `out`, everything else on `err`.

    Args:
        out: Stream for the standard output of the ranks.
        err: Stream for their standard error, stages and remarks.
    """

    def __init__(self, out: TextIO = sys.stdout, err: TextIO = sys.stderr) -> None:
        self._out = out
        self._err = err
        self._display = self._make_display(Labels([]))
        self._stages = StageLine(err)

    def stage_begins(self, name: str, host: str, expected_seconds: float | None) -> None:
        """Show a stage on the last line of a terminal."""
        self._stages.begin(name, host, expected_seconds)

    def stage_ends(self, name: str, host: str, seconds: float) -> None:
        """Show how long a stage took."""
        self._stages.end(name, host)
        where = f" on {host}" if host else ""
        self.note(f"{name}{where}: {seconds:.1f} s")

    def note(self, text: str) -> None:
        """Show a remark."""
        self._stages.hide()
        self._display.note(text)
        self._stages.show()

    def entry(self, entry: Mapping[str, Any]) -> None:
        """Show an entry of the journal."""
        self._stages.hide()
        number = entry.get("slot", entry.get("rank"))
        match entry.get("event"):
            case "line":
                is_error = entry["stream"] == "stderr"
                self._display.line(int(number or 0), str(entry["text"]), is_error=is_error)
            case "started" if "slot" in entry:
                self._display.named(int(entry["slot"]), str(entry["host"]), entry["rank"])
            case "note":
                self._display.note(str(entry["text"]))
            case "state":
                self._show_state(entry)
            case "host" if not entry["is_there"]:
                self._display.note(f"{entry['name']} is gone")
            case "finished" if entry["failure"]:
                self._display.finished(_failure(entry["failure"]))
            case _:
                pass

    def restore(self, entry: Mapping[str, Any]) -> None:
        """Take over the names of ranks from an entry that was shown before."""
        if entry.get("hosts"):
            self._show_state(entry)
        elif entry.get("event") == "started" and "slot" in entry:
            self.entry(entry)

    def _show_state(self, entry: Mapping[str, Any]) -> None:
        hosts, slots = entry.get("hosts", ()), entry.get("slots", ())
        if hosts:
            ranks = [host for host, count in zip(hosts, slots, strict=True) for _ in range(count)]
            self._display = self._make_display(Labels(ranks, with_hosts=len(hosts) > 1))
        elif entry.get("text"):
            self._display.note(f"{entry['state']}: {entry['text']}")

    def _make_display(self, labels: Labels) -> TerminalDisplay:
        return TerminalDisplay(labels, self._out, self._err, mode="all", color=True)


class JsonView:
    """A view for programs: one JSON object per line on stdout."""

    def stage_begins(self, name: str, host: str, expected_seconds: float | None) -> None:
        """Print that a stage has begun."""
        fields = {"name": name, "host": host, "seconds": None, "expected": expected_seconds}
        self.entry({"event": "stage", **fields})

    def stage_ends(self, name: str, host: str, seconds: float) -> None:
        """Print how long a stage took."""
        self.entry({"event": "stage", "name": name, "host": host, "seconds": seconds})

    def note(self, text: str) -> None:
        """Print a remark."""
        self.entry({"event": "note", "text": text})

    def entry(self, entry: Mapping[str, Any]) -> None:
        """Print an entry."""
        print(json.dumps(dict(entry)), flush=True)

    def restore(self, entry: Mapping[str, Any]) -> None:
        """Print nothing again."""


def _failure(fields: Mapping[str, Any]) -> Failure:
    known = {name: fields[name] for name in Failure.__slots__ if name in fields}
    known["others"] = [AlsoFailed(**other) for other in fields.get("others", ())]
    return Failure(**known)
