"""Table and JSON of forecasts compared with measured steps."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from slipstream.bench.environment import environment, environment_line
from slipstream.bench.forecast.measure import ForecastReport, high_error, mean_error
from slipstream.bench.models import model
from slipstream.bench.replay.measure import PEERS
from slipstream.bench.tables import make_table


def table(report: ForecastReport) -> Table:
    """Return a table with a row for each step.

    Args:
        report: Report of the measured and forecast steps.
    """
    shown = make_table(
        "Steps in the lab, forecast and measured",
        words=("hosts x ranks", "rate", "model", "backend"),
        numbers=("measured s", "forecast s", "error"),
        caption=_caption(report),
    )
    last: tuple[int, str] | None = None
    for row in report.rows:
        is_new = last != (row.hosts, row.rate)
        if last and is_new:
            shown.add_section()
        last = row.hosts, row.rate
        shown.add_row(
            f"{row.hosts} x {row.ranks}" if is_new else "",
            row.rate if is_new else "",
            row.model,
            PEERS[row.backend].title,
            f"{row.measured.median:.3f}",
            f"{row.forecast:.3f}",
            f"{row.error:+.1%}",
        )
    return shown


def _caption(report: ForecastReport) -> str:
    wires = "; ".join(
        f"{name} reaches {wire.share:.3f} of a link, {wire.latency * 1e6:.0f} us per step and"
        f" {wire.processed / 1e9:.2f} GB/s on the processors"
        for name, wire in report.numbers.wires.items()
    )
    inside = report.numbers.inside
    if inside:
        wires += f"; the ranks of a host together reach {inside.rate / 1e9:.1f} GB/s"
    errors = "; ".join(
        f"{PEERS[name].title}: {mean_error(rows):.1%}, p90 {high_error(rows):.1%}"
        for name in report.spec.backends
        if (rows := report.of(name))
    )
    return (
        f"Mean error {report.mean_error:.1%}, 90th percentile {report.high_error:.1%}."
        f" {errors}.\nMeasured before the steps: {wires}; optimizers reach"
        f" {report.numbers.updated / 1e9:.1f} GB/s.\n{environment_line()}"
    )


def as_json(report: ForecastReport) -> dict[str, Any]:
    """Return all measurements and forecasts as a JSON-compatible dictionary.

    Args:
        report: Report of the measured and forecast steps.
    """
    return {
        "spec": asdict(report.spec),
        **environment(),
        "numbers": asdict(report.numbers),
        "compute_seconds": {
            name: report.spec.compute_seconds(model(name)) for name in report.spec.models
        },
        "mean_error": report.mean_error,
        "high_error": report.high_error,
        "backends": {
            name: {"mean_error": mean_error(rows), "high_error": high_error(rows)}
            for name in report.spec.backends
            if (rows := report.of(name))
        },
        "rows": [
            {
                "model": row.model,
                "backend": row.backend,
                "hosts": row.hosts,
                "ranks": row.ranks,
                "rate": row.rate,
                "forecast_seconds": row.forecast,
                "median_seconds": row.measured.median,
                "seconds": row.measured.seconds,
                "error": row.error,
            }
            for row in report.rows
        ],
    }
