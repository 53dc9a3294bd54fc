"""Tables and JSON of the benchmark of collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from slipstream.bench.comm import limits as comm_limits
from slipstream.bench.comm.job import COPY_AND_ADD, HOST_COPIES, PING_PONG, YARDSTICKS
from slipstream.bench.comm.measure import COUNTED_FROM, CommReport, CommRow, CommSpec
from slipstream.bench.devices import CPU, gloo_has_code
from slipstream.bench.environment import environment, environment_line
from slipstream.bench.tables import make_table, not_run
from slipstream.lab import LabSpec
from slipstream.units import format_bit_rate, format_bytes, format_seconds

GLOO = "gloo"
RELAY_NOTE = (
    "The hosts are ordinary processes of this machine, and a relay shapes their connections."
)
# with fewer rounds, the table shows no 99th percentile, because it would be the maximum
P99_ROUNDS = 100


def tables(report: CommReport) -> list[Table]:
    """Return a table for each collective, with a row for each size and contender."""
    return [_table(report, collective) for collective in report.spec.collectives]


def as_json(report: CommReport) -> dict[str, Any]:
    """Return the settings and all measured values as a JSON-compatible dictionary."""
    spec = report.spec
    return {
        "spec": asdict(spec),
        **environment(),
        "notes": report.notes,
        "is_relayed": report.is_relayed,
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
    """Return a one-line description of the ranks and their network."""
    if spec.lab is None:
        return f"{spec.local} ranks of this machine"
    rate = spec.cross_traffic
    return describe_lab(spec.lab) + (f", with {rate} of cross traffic from each" if rate else "")


def describe_lab(lab: LabSpec) -> str:
    """Return a one-line description of a lab's hosts and link rates."""
    text = f"{lab.hosts} lab hosts of {lab.ranks_per_host} at "
    text += " or ".join(map(format_bit_rate, sorted(set(lab.link_rates), reverse=True)))
    if caps := sorted(set(lab.flow_caps), reverse=True):
        text += f", flows up to {' or '.join(map(format_bit_rate, caps))}"
    if lab.uplink_rate:
        text += f", {lab.racks} racks at {format_bit_rate(lab.uplink_rate)}"
    return text


def _table(report: CommReport, collective: str) -> Table:
    spec = report.spec
    rows = [row for row in report.rows if row.samples.collective == collective]
    is_counted = any(row.host_bytes is not None for row in rows)
    has_uplinks = is_counted and spec.lab is not None and spec.lab.racks > 1
    has_p99 = spec.rounds >= P99_ROUNDS
    headings = ["median", "bus\nGB/s", "of\nlimit", "gloo /\nthis"]
    headings += ["p99 /\nmedian"] * has_p99
    headings += ["link,\n/ least"] * is_counted + ["uplink,\n/ least"] * has_uplinks
    table = make_table(
        f"{collective} of float32{_place(report)}, {title(spec)}",
        words=("size", "contender"),
        numbers=headings,
        caption=_caption(report, is_counted),
    )
    last = 0
    for row in rows:
        size = row.samples.size
        if last and size != last:
            table.add_section()
        cells = _cells(report, row, _medians(rows, size))
        cells += [f"{row.samples.p99 / row.samples.median:.2f}"] * has_p99
        cells += [_bytes_cell(row.host_bytes, row.least_host_bytes)] * is_counted
        cells += [_bytes_cell(row.uplink_bytes, row.least_uplink_bytes)] * has_uplinks
        table.add_row(format_bytes(size) if size != last else "", _shown_name(row), *cells)
        last = size
    if spec.device != CPU:
        for peer in report.missing:
            table.add_row("", peer, "not run")
    return table


def _place(report: CommReport) -> str:
    device = report.spec.device
    return f" on {device}" if device != CPU else ""


def _shown_name(row: CommRow) -> str:
    return row.samples.contender.replace("+feedback", "+ef")


def _medians(rows: Sequence[CommRow], size: int) -> dict[str, float]:
    """Return the median seconds per call of each contender for one buffer size."""
    return {row.samples.contender: row.samples.median for row in rows if row.samples.size == size}


def _cells(report: CommReport, row: CommRow, medians: dict[str, float]) -> list[str]:
    name, median = row.samples.contender, row.samples.median
    if name == PING_PONG:
        return [format_seconds(median / 2), "", "", ""]
    if name in YARDSTICKS:
        return [format_seconds(median), "", "", ""]
    share = row.limit_share if row.samples.size >= COUNTED_FROM else None
    if COPY_AND_ADD in medians:
        share = medians[COPY_AND_ADD] / median
    elif HOST_COPIES in medians:
        copies = medians[HOST_COPIES] * comm_limits.CODEC_SHARE[row.codec]
        share = max(copies, row.limit_seconds or 0.0) / median
    faster = medians[GLOO] / median if GLOO in medians else None
    return [
        format_seconds(median),
        f"{row.bus_bandwidth(report.spec.ranks) / 1e9:.3g}",
        "" if share is None else f"{share:.3f}",
        "" if faster is None else f"{faster:.2f}x",
    ]


def _bytes_cell(counted: int | None, least: float | None) -> str:
    if counted is None or not least:
        return ""
    return f"{format_bytes(counted)} {counted / least:.3f}"


def _caption(report: CommReport, is_counted: bool) -> str:
    text = (
        "bus: size / time, times a factor that makes it comparable with the rate of a link"
        " (docs/benchmarks.md). gloo / this: gloo's time divided by the time of this contender."
    )
    if is_counted:
        text += (
            " limit: the fewest possible bytes at"
            f" {comm_limits.GOODPUT} of the rate of the busiest link. link: payload of one call on"
            " the busiest link, and its ratio to the fewest possible bytes. Ping-pong: time of one"
            " way. ef: error feedback."
        )
    elif report.spec.device == CPU:
        text += " limit: copy and add, a loop over memory on all ranks at the same time."
    if report.spec.device != CPU:
        text += " " + _device_caption(report)
    if report.is_relayed:
        text += f" {RELAY_NOTE}"
    return f"{text}\n{environment_line()}"


def _device_caption(report: CommReport) -> str:
    text = (
        "limit: copies of all ranks between device and host, both ways at once, or the link if it"
        " takes longer."
    )
    if not gloo_has_code(report.spec.device):
        text += (
            f" gloo gets copies in host memory, because it has no code for {report.spec.device}."
        )
    return text + not_run(report.missing)
