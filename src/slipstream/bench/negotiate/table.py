"""Measurements of negotiation as people and as programs read them."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from slipstream.bench.comm.table import format_seconds, format_size
from slipstream.bench.negotiate.job import CASES, COORDINATOR, Negotiated
from slipstream.bench.negotiate.measure import NegotiateReport
from slipstream.bench.result import environment, environment_line


def tables(report: NegotiateReport) -> list[Table]:
    """Return a table of the contenders, and one of rounds by number of ranks if there are any."""
    return [_contenders(report), *([_scaling(report)] if report.scaling else [])]


def as_json(report: NegotiateReport) -> dict[str, Any]:
    """Return everything that was measured, and how."""
    return {
        "spec": {**asdict(report.spec), "scaling": str(report.spec.scaling or "")},
        **environment(),
        "results": [
            {"ranks": ranks, **asdict(each), "median_seconds": each.median}
            for ranks, results in report.results.items()
            for each in results
        ],
        "scaling": [asdict(row) for row in report.scaling],
    }


def _contenders(report: NegotiateReport) -> Table:
    spec = report.spec
    table = Table(
        title=f"{spec.tensors:,} tensors of 1 KB, submitted in another order on each rank",
        caption=f"Until all are known to be ready on all ranks, median of {spec.rounds}; rounds,"
        " messages (sent and received) and bytes sent are of the rank that has most; cycle of ours"
        f" {format_seconds(spec.cycle_seconds)}. {environment_line()}.",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for heading in ("ranks", "tensors", "who"):
        table.add_column(heading)
    for heading in ("time", "from - to", "rounds", "messages", "sent", "coordinator's time"):
        table.add_column(heading, justify="right")
    for ranks, results in report.results.items():
        for each in sorted(results, key=lambda result: CASES.index(result.case)):
            table.add_row(str(ranks), *_cells(each, _coordinator(results, each.case)))
        table.add_section()
    return table


def _coordinator(results: list[Negotiated], case: str) -> Negotiated:
    return next(each for each in results if (each.contender, each.case) == (COORDINATOR, case))


def _cells(each: Negotiated, coordinator: Negotiated) -> list[str]:
    return [
        each.case,
        each.contender,
        format_seconds(each.median),
        f"{format_seconds(min(each.seconds))} - {format_seconds(max(each.seconds))}",
        f"{statistics.median(each.exchanges):g}",
        f"{statistics.median(each.messages):g}",
        format_size(statistics.median(each.sent_bytes)),
        f"{coordinator.median / each.median:.2f} x",
    ]


def _scaling(report: NegotiateReport) -> Table:
    table = Table(
        title="Rounds among threads, over links that delay every message",
        caption="In `delays`, a round's time is divided by the delay: log2 of the ranks where it"
        " is the links that are waited for, more where it is the cores.",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for heading in ("delay", "ranks", "time of a round", "delays", "messages of a rank"):
        table.add_column(heading, justify="right")
    last = 0.0
    for row in report.scaling:
        if last and row.delay_seconds != last:
            table.add_section()
        last = row.delay_seconds
        table.add_row(
            format_seconds(row.delay_seconds),
            str(row.ranks),
            format_seconds(row.seconds),
            f"{row.seconds / row.delay_seconds:.1f}",
            f"{row.messages:g}",
        )
    return table
