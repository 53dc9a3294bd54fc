"""Serving benchmarks as people and as programs read them."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from slipstream.bench.result import environment, environment_line
from slipstream.bench.serve.results import OK, Overload, Point, ServeReport, quantile
from slipstream.infer.machine import this_machine

OPEN_HEADINGS = (
    "sent/s", "in time/s", "accepted", "429", "failed", "kept", "p99 ms", "lag ms", "MB",
)  # fmt: skip


def tables(report: ServeReport) -> list[Table]:
    """Return tables of closed loops, of open loops if there were any, and of the targets."""
    overloads = [_overloads(report.overloads)] if report.overloads else []
    return [_closed(report), *overloads, _bars(report)]


def caption(report: ServeReport) -> str:
    """Return the meaning of the columns, and the machine."""
    words = ", ".join(f"{name} {db:.0f}" for name, db in report.snr_db.items())
    return (
        "/s: results per second; p50 and p99 of latencies, as clients see them: medians over"
        " rounds. Clients share the cores with the server. Open loops: requests at random times,"
        " each counted from when it should have been sent; lag: by which it was sent later, p99."
        " x2: two runs at a time."
        f" dB of outputs beside the package's: {words}. {environment_line()}."
    )


def as_json(report: ServeReport, spec: dict[str, Any]) -> dict[str, Any]:
    """Return everything that was measured, and how; of the open loop's latencies, quantiles.

    Args:
        report: Report of the run.
        spec: fields of what was asked for.
    """
    return {
        "spec": {
            name: str(each) if isinstance(each, Path) else each for name, each in spec.items()
        },
        **environment(),
        "versions": this_machine().versions,
        "package": report.package,
        "engine": report.engine,
        "threads": report.threads,
        "snr_db": report.snr_db,
        "notes": report.notes,
        "closed": [{**asdict(each), "middle": asdict(each.middle)} for each in report.points],
        "added_seconds": report.added,
        "open": [_overload_as_json(each) for each in report.overloads],
        "bars": [asdict(each) for each in report.bars],
    }


def _closed(report: ServeReport) -> Table:
    shown = Table(
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        title=f"{report.package} by {report.engine}, threads: {report.threads}; closed loops",
        title_justify="left",
    )
    shown.add_column("clients", justify="right", no_wrap=True)
    for name in report.contenders:
        for heading in (f"{name}\n/s", "\np50 ms", "\np99 ms"):
            shown.add_column(heading, justify="right", no_wrap=True)
    for clients in sorted({each.clients for each in report.points}):
        cells = [_cells(report.point(name, clients)) for name in report.contenders]
        shown.add_row(str(clients or "in process"), *itertools.chain.from_iterable(cells))
    return shown


def _cells(point: Point | None) -> list[str]:
    if point is None:
        return ["", "", ""]
    middle = point.middle
    return [f"{middle.rate:.1f}", _milliseconds(middle.p50), _milliseconds(middle.p99)]


def _overloads(overloads: Sequence[Overload]) -> Table:
    first = overloads[0]
    shown = Table(
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        title=(f"open loops of {first.turn.seconds:g} s, deadline {first.deadline * 1e3:g} ms"),
        title_justify="left",
    )
    shown.add_column("by", no_wrap=True)
    for heading in OPEN_HEADINGS:
        shown.add_column(heading, justify="right", no_wrap=True)
    for each in overloads:
        shown.add_row(*_overload_cells(each))
    return shown


def _overload_cells(found: Overload) -> list[str]:
    turn = found.turn
    memory = turn.memory
    return [
        found.contender,
        f"{found.rate:.0f}",
        f"{found.useful_rate:.1f}",
        str(found.num_accepted),
        str(found.num_refused),
        str(found.num_failed),
        f"{found.kept:.2%}",
        _milliseconds(quantile(turn.latencies, 99)) if turn.latencies else "",
        _milliseconds(quantile(turn.lags, 99)) if turn.lags else "",
        f"{memory[0] / 1e6:.0f}-{max(memory) / 1e6:.0f}" if memory else "",
    ]  # fmt: skip


def _bars(report: ServeReport) -> Table:
    shown = Table(
        box=box.SIMPLE_HEAD, collapse_padding=True, title="promised", title_justify="left"
    )
    shown.add_column("")
    for heading in ("measured", "wanted", "holds"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for bar in report.bars:
        shown.add_row(bar.name, bar.measured, bar.wanted, "yes" if bar.holds else "no")
    return shown


def _overload_as_json(found: Overload) -> dict[str, Any]:
    turn = found.turn
    percents = (1, 10, 50, 90, 99)
    return {
        "contender": found.contender,
        "rate": found.rate,
        "seconds": turn.seconds,
        "deadline": found.deadline,
        "statuses": turn.statuses,
        "accepted": found.num_accepted,
        "refused": found.num_refused,
        "failed": found.num_failed,
        "in_time": found.num_kept,
        "kept": found.kept,
        "latency_quantiles": _quantiles(turn.latencies, percents),
        "latency_most": max(turn.latencies, default=None),
        "latency_mean": statistics.fmean(turn.latencies) if turn.statuses.get(OK) else None,
        "lag_quantiles": _quantiles(turn.lags, percents),
        "memory_bytes": turn.memory,
        "memory_growth": found.growth,
    }


def _quantiles(values: Sequence[float], percents: Sequence[int]) -> dict[str, float]:
    return {f"p{each}": quantile(values, each) for each in percents} if values else {}


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"
