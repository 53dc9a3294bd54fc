"""The measurement of the NCCL plugin as a table and as JSON."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from rich.table import Table

from slipstream.bench.comm.table import describe_lab
from slipstream.bench.environment import environment, environment_line
from slipstream.bench.limits import GOODPUT
from slipstream.bench.plugin.job import PluginSamples
from slipstream.bench.plugin.measure import PluginReport
from slipstream.bench.tables import make_table
from slipstream.units import format_bytes, format_seconds


def tables(report: PluginReport) -> list[Table]:
    """Return a table with a row for each size of message and each way to send it."""
    spec = report.spec
    where = "two processes of this machine" if spec.lab is None else describe_lab(spec.lab)
    table = make_table(
        f"One rank sends to the other in requests of {format_bytes(spec.request_bytes)}; {where}",
        words=("size", "contender"),
        numbers=(
            "median",
            "Gbit/s",
            "of\nlimit",
            "1 socket /\nthis",
            "CPU s/GB,\nsender",
            "receiver",
        ),
        caption=_caption(),
    )
    last = 0
    for samples in report.samples:
        if last and samples.size != last:
            table.add_section()
        size = format_bytes(samples.size) if samples.size != last else ""
        table.add_row(size, samples.contender, *_cells(report, samples))
        last = samples.size
    return [table]


def as_json(report: PluginReport) -> dict[str, Any]:
    """Return the settings and all measured values as a JSON-compatible dictionary."""
    return {
        "spec": asdict(report.spec),
        **environment(),
        "rows": [
            {
                **asdict(samples),
                "median_seconds": samples.median,
                "limit_share": report.limit_share(samples),
                "times_faster_than_one_socket": report.times_faster(samples),
            }
            for samples in report.samples
        ],
    }


def _cells(report: PluginReport, samples: PluginSamples) -> list[str]:
    share = report.limit_share(samples)
    gigabytes = samples.size / 1e9
    return [
        format_seconds(samples.median),
        f"{8 * gigabytes / samples.median:.3g}",
        "" if share is None else f"{share:.3f}",
        f"{report.times_faster(samples):.2f}x",
        f"{statistics.median(samples.sender_cpu) / gigabytes:.2f}",
        f"{statistics.median(samples.receiver_cpu) / gigabytes:.2f}",
    ]


def _caption() -> str:
    return (
        f"limit: the size at {GOODPUT} of the rate of the link. 1 socket / this: the time of one"
        " plain socket divided by the time of this contender. Ranks test the plugin's requests"
        " without a pause, and only yield their core, as NCCL's thread does. Plain sockets wait in"
        f" the kernel.\n{environment_line()}"
    )
