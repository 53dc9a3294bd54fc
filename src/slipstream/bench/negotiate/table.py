"""Tables and JSON of the negotiation benchmark."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from rich.table import Table

from slipstream.bench.environment import environment, environment_line
from slipstream.bench.negotiate.job import CASES, COORDINATOR, Negotiated
from slipstream.bench.negotiate.measure import NegotiateReport
from slipstream.bench.tables import make_table
from slipstream.units import format_bytes, format_seconds


def tables(report: NegotiateReport) -> list[Table]:
    """Return a table of the negotiation methods, and a table of `negotiate_bench` if it was run."""
    return [_contenders(report), *([_scaling(report)] if report.scaling else [])]


def as_json(report: NegotiateReport) -> dict[str, Any]:
    """Return the settings and all measured values as a JSON-compatible dictionary."""
    return {
        "spec": {**asdict(report.spec), "scaling": str(report.spec.scaling or "")},
        **environment(),
        "results": [
            {"ranks": ranks, **asdict(result), "median_seconds": result.median}
            for ranks, results in report.results.items()
            for result in results
        ],
        "scaling": [asdict(row) for row in report.scaling],
    }


def _contenders(report: NegotiateReport) -> Table:
    spec = report.spec
    table = make_table(
        f"{spec.tensors:,} tensors of 1 KB, submitted in another order on each rank",
        words=("ranks", "tensors", "contender"),
        numbers=("time", "range", "rounds", "messages", "sent", "coordinator / this"),
        caption=(
            f"time: until every rank knows that all tensors are ready, median of {spec.rounds}."
            " rounds, messages (sent and received) and sent bytes: maximum over the ranks."
            f" coordinator / this: ratio of the times. Our cycle is"
            f" {format_seconds(spec.cycle_seconds)}. {environment_line()}."
        ),
    )
    for ranks, results in report.results.items():
        for result in sorted(results, key=lambda result: CASES.index(result.case)):
            table.add_row(str(ranks), *_cells(result, _coordinator(results, result.case)))
        table.add_section()
    return table


def _coordinator(results: list[Negotiated], case: str) -> Negotiated:
    key = (COORDINATOR, case)
    return next(result for result in results if (result.contender, result.case) == key)


def _cells(result: Negotiated, coordinator: Negotiated) -> list[str]:
    return [
        result.case,
        result.contender,
        format_seconds(result.median),
        f"{format_seconds(min(result.seconds))} - {format_seconds(max(result.seconds))}",
        f"{statistics.median(result.exchanges):g}",
        f"{statistics.median(result.messages):g}",
        format_bytes(statistics.median(result.sent_bytes)),
        f"{coordinator.median / result.median:.2f} x",
    ]


def _scaling(report: NegotiateReport) -> Table:
    table = make_table(
        "Rounds among threads, over links that delay every message",
        numbers=("delay", "ranks", "time of a round", "delays", "messages of a rank"),
        caption=(
            "delays: time of a round divided by the delay. It is log2 of the ranks if the links"
            " limit the time, and more if the cores do."
        ),
    )
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
