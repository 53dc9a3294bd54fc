"""Progress of the training: a live panel on a terminal, plain lines elsewhere."""

import sys
import time
from dataclasses import dataclass
from typing import Protocol

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """The state of the training at one moment, counted over all workers."""

    epoch: int
    num_epochs: int
    step: int
    num_steps: int
    loss: float
    samples_per_second: float
    remaining_seconds: float
    hidden_share: float | None
    sent_bytes: tuple[int, int] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochResult:
    """The results of one epoch; the accuracy is measured on the test images."""

    epoch: int
    loss: float
    accuracy: float
    seconds: float


class Display(Protocol):
    """A receiver of the progress."""

    def show(self, status: Status) -> None: ...
    def finish_epoch(self, result: EpochResult) -> None: ...
    def close(self) -> None: ...


class Silence:
    """The display of all workers except the first: it shows nothing."""

    def show(self, status: Status) -> None:
        pass

    def finish_epoch(self, result: EpochResult) -> None:
        pass

    def close(self) -> None:
        pass


class Lines:
    """Plain lines, at most one every two seconds, for logs and pipes."""

    def __init__(self) -> None:
        self._last_time = 0.0

    def show(self, status: Status) -> None:
        now = time.monotonic()
        if now - self._last_time < 2.0:
            return
        self._last_time = now
        print(
            f"epoch {status.epoch}/{status.num_epochs} step {status.step}/{status.num_steps} "
            + "  ".join(f"{name} {value}" for name, value in _readings(status)),
            flush=True,
        )

    def finish_epoch(self, result: EpochResult) -> None:
        print(
            f"epoch {result.epoch} done: loss {result.loss:.4f}  "
            f"test accuracy {result.accuracy:.4f}  {result.seconds:.1f} s",
            flush=True,
        )

    def close(self) -> None:
        pass


class LivePanel:
    """A panel that is redrawn in place, with a table of the finished epochs at its end."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._results: list[EpochResult] = []
        self._status: Status | None = None
        self._live = Live(get_renderable=self._render, refresh_per_second=5)
        self._live.start()

    def show(self, status: Status) -> None:
        self._status = status

    def finish_epoch(self, result: EpochResult) -> None:
        self._results.append(result)

    def close(self) -> None:
        self._live.stop()

    def _render(self) -> Panel:
        parts = [] if self._status is None else [_bar(self._status), _grid(self._status)]
        table = [_table(self._results)] if self._results else []
        return Panel(Group(*parts, *table), title=self._title, width=80)


def open_display(title: str, rank: int) -> Display:
    """Return a live panel or plain lines on rank 0, and a silent display on other ranks."""
    if rank != 0:
        return Silence()
    return LivePanel(title) if sys.stdout.isatty() else Lines()


def _readings(status: Status) -> list[tuple[str, str]]:
    hidden, sent = status.hidden_share, status.sent_bytes
    return [
        ("loss", f"{status.loss:.4f}"),
        ("samples/s", f"{status.samples_per_second:,.0f}"),
        ("ETA", format_seconds(status.remaining_seconds)),
        ("communication hidden", "-" if hidden is None else f"{hidden:.0%}"),
        ("on the wire", "-" if sent is None else format_bytes(sent[0])),
        ("shared memory", "-" if sent is None else format_bytes(sent[1])),
    ]


def format_bytes(count: float) -> str:
    """Return a number of bytes with a unit: 0 B, 12.3 KB, 4.5 GB."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def format_seconds(seconds: float) -> str:
    """Return a time as minutes and seconds: 2:05."""
    minutes, whole_seconds = divmod(round(seconds), 60)
    return f"{minutes}:{whole_seconds:02d}"


def _bar(status: Status) -> Table:
    done = (status.epoch - 1) * status.num_steps + status.step
    row = Table.grid(padding=(0, 1))
    row.add_row(
        f"epoch [bold]{status.epoch}[/]/{status.num_epochs}  "
        f"step {status.step:4}/{status.num_steps}",
        ProgressBar(total=status.num_epochs * status.num_steps, completed=done, width=42),
    )
    return row


def _grid(status: Status) -> Table:
    grid = Table.grid(padding=(0, 3))
    readings = _readings(status)
    for first in (0, 3):
        cells = [f"[dim]{name}[/] [bold]{value}[/]" for name, value in readings[first : first + 3]]
        grid.add_row(*cells)
    return grid


def _table(results: list[EpochResult]) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for name in ("epoch", "loss", "test accuracy", "seconds"):
        table.add_column(name, justify="right")
    best = max((result.accuracy for result in results), default=0.0)
    for result in results:
        style = "bold green" if result.accuracy == best else ""
        table.add_row(
            f"{result.epoch}",
            f"{result.loss:.4f}",
            f"{result.accuracy:.4f}",
            f"{result.seconds:.1f}",
            style=style,
        )
    return table
