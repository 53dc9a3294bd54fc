"""Measurements of collectives as people and as programs read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from slipstream.bench.comm import limits as comm_limits
from slipstream.bench.comm.job import COPY_AND_ADD, PING_PONG
from slipstream.bench.comm.measure import COUNTED_FROM, CommReport, CommRow, CommSpec
from slipstream.bench.result import environment, environment_line
from slipstream.lab import LabSpec
from slipstream.units import format_bit_rate

GLOO = "gloo"
P99_ROUNDS = 100  # fewer have no 99th percentile to speak of


def tables(report: CommReport) -> list[Table]:
    """Return a table for each collective, a row for each size and contender."""
    return [_table(report, collective) for collective in report.spec.collectives]


def as_json(report: CommReport) -> dict[str, Any]:
    """Return everything that was measured, and how."""
    spec = report.spec
    return {
        "spec": asdict(spec),
        **environment(),
        "notes": report.notes,
        "rows": [
            {
                **asdict(row.samples),
                "median_seconds": row.samples.median,
                "p99_seconds": row.samples.p99,
                "codec": row.codec,
                "bus_bytes_per_second": row.bus_bandwidth(spec.ranks),
                "limit_seconds": row.limit_seconds,
                "host_link_bytes": row.host_bytes,
                "least_host_link_bytes": row.least_host_bytes,
                "uplink_bytes": row.uplink_bytes,
                "least_uplink_bytes": row.least_uplink_bytes,
            }
            for row in report.rows
        ],
    }


def title(spec: CommSpec) -> str:
    """Return the place of the measurement, in one line."""
    if spec.lab is None:
        return f"{spec.local} ranks of this machine"
    others = f", beside others' {spec.cross_traffic} from each" if spec.cross_traffic else ""
    return describe_lab(spec.lab) + others


def describe_lab(lab: LabSpec) -> str:
    """Return hosts and rates of a lab in one line."""
    text = f"{lab.hosts} lab hosts of {lab.ranks_per_host} at "
    text += " or ".join(map(format_bit_rate, sorted(set(lab.link_rates), reverse=True)))
    if caps := sorted(set(lab.flow_caps), reverse=True):
        text += f", flows up to {' or '.join(map(format_bit_rate, caps))}"
    if lab.uplink_rate:
        text += f", {lab.racks} racks at {format_bit_rate(lab.uplink_rate)}"
    return text


def format_size(size: float) -> str:
    """Return bytes with a unit, to three digits."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.0f} B"


def format_seconds(seconds: float) -> str:
    """Return a time with a unit, to three digits."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _table(report: CommReport, collective: str) -> Table:
    spec = report.spec
    rows = [row for row in report.rows if row.samples.collective == collective]
    counted = any(row.host_bytes is not None for row in rows)
    has_uplinks = counted and spec.lab is not None and spec.lab.racks > 1
    shown = Table(
        box=box.SIMPLE_HEAD,
        title=f"{collective} of float32, {title(spec)}",
        caption=_caption(counted),
        title_justify="left",
        caption_justify="left",
    )
    shown.add_column("size", justify="right", no_wrap=True)
    shown.add_column("over", no_wrap=True)
    has_p99 = spec.rounds >= P99_ROUNDS
    headings = ["median", "bus\nGB/s", "of\nlimit", "gloo's\ntime"]
    headings += ["p99 /\nmedian"] * has_p99
    headings += ["link,\n/ least"] * counted + ["uplink,\n/ least"] * has_uplinks
    for heading in headings:
        shown.add_column(heading, justify="right", no_wrap=True)
    last = 0
    for row in rows:
        size = row.samples.size
        if last and size != last:
            shown.add_section()
        cells = _cells(report, row, _others(rows, size))
        cells += [f"{row.samples.p99 / row.samples.median:.2f}"] * has_p99
        cells += [_bytes_cell(row.host_bytes, row.least_host_bytes)] * counted
        cells += [_bytes_cell(row.uplink_bytes, row.least_uplink_bytes)] * has_uplinks
        shown.add_row(format_size(size) if size != last else "", _shown_name(row), *cells)
        last = size
    return shown


def _shown_name(row: CommRow) -> str:
    return row.samples.contender.replace("+feedback", "+ef")


def _others(rows: Sequence[CommRow], size: int) -> dict[str, float]:
    """Return the median seconds of each contender with one size."""
    return {row.samples.contender: row.samples.median for row in rows if row.samples.size == size}


def _cells(report: CommReport, row: CommRow, medians: dict[str, float]) -> list[str]:
    name, median = row.samples.contender, row.samples.median
    if name == PING_PONG:
        return [format_seconds(median / 2), "", "", ""]
    if name == COPY_AND_ADD:
        return [format_seconds(median), "", "", ""]
    share = row.limit_share if row.samples.size >= COUNTED_FROM else None
    if COPY_AND_ADD in medians:
        share = medians[COPY_AND_ADD] / median
    faster = medians[GLOO] / median if GLOO in medians else None
    return [
        format_seconds(median),
        f"{row.bus_bandwidth(report.spec.ranks) / 1e9:.3g}",
        "" if share is None else f"{share:.3f}",
        "" if faster is None else f"{faster:.2f}x",
    ]


def _bytes_cell(passed: int | None, least: float | None) -> str:
    if passed is None or not least:
        return ""
    return f"{format_size(passed)} {passed / least:.3f}"


def _caption(counted: bool) -> str:
    text = (
        "bus: size x a factor that makes it comparable with a link's rate (docs/benchmarks.md)."
        " gloo's time: divided by this one."
    )
    if counted:
        text += (
            f" Limit: {comm_limits.GOODPUT} of the busiest link, with the least bytes. Link:"
            " payload that one call sent over the busiest one. Ping-pong: one way. ef: error"
            " feedback."
        )
    else:
        text += " Limit: copy and add, a loop over memory on all ranks at once."
    return f"{text}\n{environment_line()}"
