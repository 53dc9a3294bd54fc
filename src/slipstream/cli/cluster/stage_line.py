"""The last line of a terminal: what is being made, for how long, and how long it usually takes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.live import Live

MAX_NAMES = 3


class StageLine:
    """The stages that are going on, on the last line of a terminal; nothing on other streams.

    Args:
        stream: Stream for the line.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._stages: dict[tuple[str, str], tuple[float, float | None]] = {}
        self._lock = threading.Lock()
        self._live: Live | None = None

    def begin(self, name: str, host: str, expected_seconds: float | None) -> None:
        """Show a stage.

        Args:
            name: Name of the stage.
            host: Name of the host, or "".
            expected_seconds: Time that the stage usually takes in seconds, or None.
        """
        with self._lock:
            self._stages[name, host] = (time.monotonic(), expected_seconds)
            self._show()

    def end(self, name: str, host: str) -> None:
        """Show a stage no longer."""
        with self._lock:
            self._stages.pop((name, host), None)
            if not self._stages:
                self._hide()

    def hide(self) -> None:
        """Erase the line, so that others can write."""
        with self._lock:
            self._hide()

    def show(self) -> None:
        """Show the line again."""
        with self._lock:
            self._show()

    def _show(self) -> None:
        if self._stages and self._live is None and self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, highlight=False)
            self._live = Live(self, console=console, refresh_per_second=4, transient=True)
            self._live.start()

    def _hide(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __rich__(self) -> str:
        """Return the text of the line at this moment."""
        now = time.monotonic()
        by_name: dict[str, list[tuple[str, float, float | None]]] = {}
        for (name, host), (since, expected) in tuple(self._stages.items()):
            by_name.setdefault(name, []).append((host, now - since, expected))
        return "; ".join(_describe(name, items) for name, items in by_name.items())


def _describe(name: str, items: list[tuple[str, float, float | None]]) -> str:
    hosts = [host for host, _, _ in items if host]
    where = f" on {', '.join(hosts[:MAX_NAMES])}" if hosts else ""
    more = f" and {len(hosts) - MAX_NAMES} more" if len(hosts) > MAX_NAMES else ""
    elapsed = max(seconds for _, seconds, _ in items)
    expected = [seconds for _, _, seconds in items if seconds is not None]
    usually = f", usually {max(expected):.0f} s" if expected else ""
    return f"{name}{where}{more}: {elapsed:.0f} s{usually}"
