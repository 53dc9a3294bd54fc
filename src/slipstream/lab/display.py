"""Display of labs, runs and comparisons on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from slipstream.lab.compare import Progress
from slipstream.lab.lab import Lab
from slipstream.lab.network import LinkCounters
from slipstream.units import format_bit_rate, format_bytes

_STYLES = ("cyan", "green", "magenta", "yellow", "blue", "bright_black")
_STATE_STYLES = {"waiting": "dim", "running": "bold", "done": "green", "failed": "bold red"}
# blocks that fill zero to eight eighths of a character
_BLOCKS = " " + "".join(map(chr, range(0x2581, 0x2589)))
_ASCII_BLOCKS = " .:-=+*#%"
_NUM_BLOCKS = 24


def show_line(console: Console, host: int, rank: int, text: str) -> None:
    """Show a line of a rank's output."""
    style = _STYLES[rank % len(_STYLES)]
    line = Text.assemble((f"[host{host}:{rank}] ", style), Text.from_ansi(text))
    console.print(line, soft_wrap=True)


def lab_title(lab: Lab) -> str:
    """Return a one-line description of a lab."""
    spec = lab.spec
    ranks = f"{spec.ranks_per_host} rank{'s' if spec.ranks_per_host > 1 else ''}"
    rates = sorted(set(spec.link_rates), reverse=True)
    text = (
        f"{lab.name}: {spec.hosts} hosts of {ranks} at {' or '.join(map(format_bit_rate, rates))}"
    )
    if spec.uplink_rate:
        text += f", {spec.racks} racks at {format_bit_rate(spec.uplink_rate)}"
    if caps := spec.flow_caps:
        kinds = sorted(set(caps), reverse=True)
        text += f", flows up to {' or '.join(map(format_bit_rate, kinds))} on {len(caps)} paths"
    return text


def lab_table(lab: Lab) -> Table:
    """Return a table of the hosts and links of a lab, with the traffic on the links."""
    spec, counters = lab.spec, lab.counters()
    table = Table(title=lab_title(lab), title_justify="left")
    for name in ("link", "address", "rate", "state"):
        table.add_column(name)
    for name in ("sent", "received", "dropped"):
        table.add_column(name, justify="right")
    for host, (address, rate) in enumerate(zip(lab.addresses, spec.link_rates, strict=True)):
        state = Text("cut", style="bold red") if lab.is_cut(host) else Text("up", style="green")
        traffic = _traffic_cells(counters.hosts[host])
        table.add_row(f"host {host}", address, format_bit_rate(rate), state, *traffic)
    for rack, link in enumerate(counters.uplinks):
        rate = format_bit_rate(spec.uplink_rate or 0)
        table.add_row(f"rack {rack}", "", rate, Text("up", style="green"), *_traffic_cells(link))
    return table


def lab_fields(lab: Lab) -> dict[str, Any]:
    """Return the contents of `lab_table` as a JSON-compatible dictionary."""
    spec, counters = lab.spec, lab.counters()
    hosts = [
        {
            "address": lab.addresses[host],
            "rack": spec.rack_of(host),
            "rate": spec.link_rates[host],
            "is_cut": lab.is_cut(host),
            **link_fields(counters.hosts[host]),
        }
        for host in range(spec.hosts)
    ]
    uplinks = [{"rate": spec.uplink_rate, **link_fields(link)} for link in counters.uplinks]
    return {
        "name": lab.name,
        "is_stale": False,
        "ranks_per_host": spec.ranks_per_host,
        "flow_caps": sorted(set(spec.flow_caps)),
        "hosts": hosts,
        "uplinks": uplinks,
    }


def link_fields(link: LinkCounters) -> dict[str, int]:
    """Return the counters of a link as a JSON-compatible dictionary."""
    return {
        "sent_bytes": link.sent_bytes,
        "received_bytes": link.received_bytes,
        "sent_payload_bytes": link.sent_payload_bytes,
        "received_payload_bytes": link.received_payload_bytes,
        "dropped_packets": link.dropped_packets,
    }


def progress_screen(console: Console, lab: Lab, runs: Sequence[Progress]) -> Group:
    """Return the progress of a comparison for a terminal, with one line per backend."""
    blocks = _BLOCKS if console.encoding.startswith("utf") else _ASCII_BLOCKS
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(width=8)
    grid.add_column(justify="right", width=8)
    grid.add_column(width=_NUM_BLOCKS)
    grid.add_column(justify="right", width=14)
    grid.add_column(overflow="ellipsis", no_wrap=True)
    fastest = max((rate for run in runs for rate in run.rates), default=1.0)
    for run in runs:
        state = Text(run.state, style=_STATE_STYLES[run.state])
        rate = f"{run.rates[-1] / 1e6:.0f} Mbit/s" if run.state == "running" else ""
        elapsed = f"{run.elapsed_seconds:.1f} s" if run.rates else ""
        line = Text(run.last_line, style="dim")
        grid.add_row(run.backend, state, elapsed, _curve(run.rates, fastest, blocks), rate, line)
    return Group(Text(lab_title(lab), style="dim"), grid)


def result_table(runs: Sequence[Progress]) -> Table:
    """Return a table of each run's time, traffic, and speed relative to the first run."""
    table = Table("backend")
    has_uplinks = any(run.traffic and run.traffic.uplinks for run in runs)
    names = ["seconds", "speed", "with start-up", "sent per host"]
    for name in [*names, "per uplink"] if has_uplinks else names:
        table.add_column(name, justify="right")
    for run in runs:
        if run.failure is not None or run.traffic is None:
            table.add_row(run.backend, Text("failed", style="bold red"))
            continue
        ratio = speed_ratio(runs[0], run)
        kinds = [run.traffic.hosts, *([run.traffic.uplinks] if has_uplinks else [])]
        table.add_row(
            run.backend,
            f"{run.training_seconds:.2f}" if run.training_seconds else "no group",
            f"{ratio:.2f}x" if ratio else "",
            f"{run.elapsed_seconds:.2f}",
            *(format_bytes(_mean([link.sent_bytes for link in links])) for links in kinds),
        )
    return table


def result_fields(runs: Sequence[Progress]) -> list[dict[str, Any]]:
    """Return the contents of `result_table` as JSON-compatible dictionaries."""
    return [
        {
            "backend": run.backend,
            "seconds": run.training_seconds,
            "seconds_with_startup": run.elapsed_seconds,
            "speed": speed_ratio(runs[0], run),
            "failure": str(run.failure) if run.failure else None,
            "hosts": [link_fields(link) for link in run.traffic.hosts] if run.traffic else [],
            "uplinks": [link_fields(link) for link in run.traffic.uplinks] if run.traffic else [],
        }
        for run in runs
    ]


def speed_ratio(first: Progress, other: Progress) -> float | None:
    """Return the speed of `other` relative to `first`; None if a run failed or was not timed."""
    if first.failure or other.failure or not first.training_seconds or not other.training_seconds:
        return None
    return first.training_seconds / other.training_seconds


def _curve(rates: Sequence[float], fastest: float, blocks: str) -> str:
    top = len(blocks) - 1
    heights = [min(round(rate / fastest * top), top) for rate in rates[-_NUM_BLOCKS:]]
    return "".join(blocks[height] for height in heights)


def _traffic_cells(link: LinkCounters) -> tuple[str, str, str]:
    sent, received = format_bytes(link.sent_bytes), format_bytes(link.received_bytes)
    return sent, received, str(link.dropped_packets)


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0
