"""The results of the benchmark on a GPU, as tables and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from slipstream.bench.infer.card import CardReport, CardResult
from slipstream.bench.tables import make_table

AIM = 1.5  # times as fast as torch.compile with one row
AIM_PEER = "compile"


def card_tables(report: CardReport) -> list[Table]:
    """Return a table for each model and number of rows."""
    return [_table(report, result) for result in report.results]


def _table(report: CardReport, result: CardResult) -> Table:
    title = f"{result.model}, {result.batch} rows, {report.spec.precision}, {report.card}"
    numbers = ("ms", f"{AIM_PEER} / it", "SNR dB", "loaded in s", "GPU memory in MB")
    table = make_table(title, words=("contender",), numbers=numbers, caption=_aim(result))
    peer = next((item.median for item in result.timings if item.contender == AIM_PEER), None)
    for timing in sorted(result.timings, key=lambda item: item.median):
        table.add_row(
            timing.contender,
            f"{timing.median * 1e3:.3f}",
            "" if peer is None else f"{peer / timing.median:.2f}",
            f"{timing.snr_db:.1f}",
            f"{timing.load_seconds:.1f}",
            f"{timing.peak_bytes / 1e6:.0f}",
        )
    return table


def _aim(result: CardResult) -> str | None:
    speed_up = result.speed_up(AIM_PEER)
    if result.batch != 1 or speed_up is None:
        return None
    reached = "reached" if speed_up >= AIM else "not reached"
    return (
        f"Slipstream is {speed_up:.2f} times as fast as torch.compile; the aim {AIM:g} is {reached}"
    )


def card_as_json(report: CardReport) -> dict[str, Any]:
    """Return the report as values of JSON."""
    results = [
        {
            **asdict(result),
            "speed_up": {peer: result.speed_up(peer) for peer in report.spec.peers},
        }
        for result in report.results
    ]
    return {"spec": asdict(report.spec), "card": report.card, "results": results}
