"""Tables and JSON of the serving benchmark."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from slipstream.bench.environment import environment, environment_line
from slipstream.bench.serve.results import OK, Overload, Point, ServeReport, quantile
from slipstream.bench.tables import make_table, yes_or_no
from slipstream.infer.machine import this_machine

OPEN_HEADINGS = (
    "sent/s", "in time/s", "accepted", "429", "failed", "kept", "p99 ms", "lag ms", "MB",
)  # fmt: skip


def tables(report: ServeReport) -> list[Table]:
    """Return tables of the closed loops, of any open loops, and of the performance targets."""
    overloads = [_overloads(report.overloads)] if report.overloads else []
    return [_closed(report), *overloads, _bars(report)]


def caption(report: ServeReport) -> str:
    """Return a caption that explains the columns and names the machine."""
    ratios = ", ".join(f"{name} {db:.0f}" for name, db in report.snr_db.items())
    return (
        "/s: results per second. p50, p99: latencies as clients see them. All are medians over"
        " rounds. Clients share the cores with the server. Open loops send requests at random"
        " times; latencies count from the planned times. lag: p99 of the delay in sending. kept:"
        " share of accepted requests answered by their deadline. x2: two runs at the same time."
        f" Signal-to-noise ratios of the outputs against the package's, in dB: {ratios}."
        f" {environment_line()}."
    )


def as_json(report: ServeReport, spec: dict[str, Any]) -> dict[str, Any]:
    """Return all measurements as a JSON-compatible dictionary.

    Latencies of open loops are given as quantiles.

    Args:
        report: Report of the run.
        spec: Settings of the run, by name.
    """
    return {
        "spec": {
            name: str(value) if isinstance(value, Path) else value for name, value in spec.items()
        },
        **environment(),
        "versions": this_machine().versions,
        "package": report.package,
        "engine": report.engine,
        "threads": report.threads,
        "snr_db": report.snr_db,
        "notes": report.notes,
        "closed": [{**asdict(point), "middle": asdict(point.middle)} for point in report.points],
        "added_seconds": report.added,
        "open": [_overload_as_json(overload) for overload in report.overloads],
        "bars": [asdict(bar) for bar in report.bars],
    }


def _closed(report: ServeReport) -> Table:
    columns = ((f"{name}\n/s", "\np50 ms", "\np99 ms") for name in report.contenders)
    table = make_table(
        f"{report.package} by {report.engine}, threads: {report.threads}; closed loops",
        numbers=("clients", *itertools.chain.from_iterable(columns)),
        is_dense=True,
    )
    for clients in sorted({point.clients for point in report.points}):
        cells = [_cells(report.point(name, clients)) for name in report.contenders]
        table.add_row(str(clients or "in process"), *itertools.chain.from_iterable(cells))
    return table


def _cells(point: Point | None) -> list[str]:
    if point is None:
        return ["", "", ""]
    middle = point.middle
    return [f"{middle.rate:.1f}", _milliseconds(middle.p50), _milliseconds(middle.p99)]


def _overloads(overloads: Sequence[Overload]) -> Table:
    first = overloads[0]
    table = make_table(
        f"open loops of {first.turn.seconds:g} s, deadline {first.deadline * 1e3:g} ms",
        words=("contender",),
        numbers=OPEN_HEADINGS,
        is_dense=True,
    )
    for overload in overloads:
        table.add_row(*_overload_cells(overload))
    return table


def _overload_cells(overload: Overload) -> list[str]:
    turn = overload.turn
    memory = turn.memory
    return [
        overload.contender,
        f"{overload.rate:.0f}",
        f"{overload.useful_rate:.1f}",
        str(overload.num_accepted),
        str(overload.num_refused),
        str(overload.num_failed),
        f"{overload.kept:.2%}",
        _milliseconds(quantile(turn.latencies, 99)) if turn.latencies else "",
        _milliseconds(quantile(turn.lags, 99)) if turn.lags else "",
        f"{memory[0] / 1e6:.0f}-{max(memory) / 1e6:.0f}" if memory else "",
    ]  # fmt: skip


def _bars(report: ServeReport) -> Table:
    table = make_table("targets", words=("",), numbers=("measured", "target", "met"), is_dense=True)
    for bar in report.bars:
        table.add_row(bar.name, bar.measured, bar.target, yes_or_no(bar.holds))
    return table


def _overload_as_json(overload: Overload) -> dict[str, Any]:
    turn = overload.turn
    percents = (1, 10, 50, 90, 99)
    return {
        "contender": overload.contender,
        "rate": overload.rate,
        "seconds": turn.seconds,
        "deadline": overload.deadline,
        "statuses": turn.statuses,
        "accepted": overload.num_accepted,
        "refused": overload.num_refused,
        "failed": overload.num_failed,
        "in_time": overload.num_kept,
        "kept": overload.kept,
        "latency_quantiles": _quantiles(turn.latencies, percents),
        "latency_most": max(turn.latencies, default=None),
        "latency_mean": statistics.fmean(turn.latencies) if turn.statuses.get(OK) else None,
        "lag_quantiles": _quantiles(turn.lags, percents),
        "memory_bytes": turn.memory,
        "memory_growth": overload.growth,
    }


def _quantiles(values: Sequence[float], percents: Sequence[int]) -> dict[str, float]:
    return {f"p{percent}": quantile(values, percent) for percent in percents} if values else {}


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"
