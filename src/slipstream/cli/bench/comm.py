"""`slipstream bench comm`: collectives compared with other libraries and link limits."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.bench.comm import bars as comm_bars
from slipstream.bench.comm import table as comm_table
from slipstream.bench.comm.limits import CODEC_SHARE, COLLECTIVES
from slipstream.bench.comm.measure import CPU_PEERS, DEVICE_PEERS, PEERS, CommSpec, measure
from slipstream.bench.devices import CPU
from slipstream.cli.lab_spec import describes_lab, lab_spec
from slipstream.cli.options import (
    AsJson,
    CrossTraffic,
    Delay,
    Device,
    FlowRate,
    NumHosts,
    OutputFile,
    Racks,
    RanksPerHost,
    RateOrRates,
    Relay,
    Rounds,
    Uplink,
    peers_option,
    split_list,
    split_peers,
)
from slipstream.cli.output import emit, remark, show
from slipstream.cli.progress import status_line
from slipstream.errors import UsageError
from slipstream.units import parse_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

EXAMPLES = f"""\b
[bold]Examples[/bold]
  slipstream bench comm                           four lab hosts at 1 Gbit/s
  slipstream bench comm --local 2                 this machine, no root needed
  slipstream bench comm --codecs none,fp16,int8 --sizes 100m
  slipstream bench comm --racks 2 --uplink 250mbit --ranks-per-host 2 --peers gloo,ring
  slipstream bench comm --cross-traffic 500mbit --sizes 25m --rounds 100
  slipstream bench comm --device cuda --num-hosts 2 --rate 10gbit   tensors on GPUs
  slipstream bench comm --preset bars -o bars.json

Collectives: {", ".join(COLLECTIVES)}.

Codecs: {", ".join(CODEC_SHARE)}.

Peers: {", ".join(PEERS)}; a peer that is not installed is left out.
"""


DEFAULT_PEERS = f"{','.join(CPU_PEERS)}; on a device {','.join(DEVICE_PEERS)}"


class PresetChoice(str, Enum):
    """Names of suites of measurements; a suite replaces the other options."""

    BARS = "bars"


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("comm", epilog=EXAMPLES)(comm)


# over budget: a parameter for each option of the command
def comm(
    context: typer.Context,
    collectives: Annotated[
        str, typer.Option(metavar="LIST", help="Collectives to measure, separated by commas.")
    ] = "allreduce",
    sizes: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="Sizes of the larger of a rank's two buffers: 4k,64KiB,100m."
        ),
    ] = "4k,64k,1m,16m,100m",
    codecs: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="Codecs that compress Slipstream's allreduce between hosts."
        ),
    ] = "none",
    peers: Annotated[str | None, peers_option(show_default=DEFAULT_PEERS)] = None,
    preset: Annotated[
        PresetChoice | None,
        typer.Option(
            help="Suite that replaces the other options; `bars` measures all performance targets."
        ),
    ] = None,
    local: Annotated[
        int | None, typer.Option(min=2, help="Number of ranks on this machine, without a lab.")
    ] = None,
    rounds: Rounds = 5,
    device: Device = CPU,
    num_hosts: NumHosts = None,
    ranks_per_host: RanksPerHost = 1,
    rate: RateOrRates = "1gbit",
    flow_rate: FlowRate = None,
    racks: Racks = 1,
    uplink: Uplink = None,
    delay: Delay = "0s",
    cross_traffic: CrossTraffic = "",
    relay: Relay = False,
    output: OutputFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure collectives of Slipstream and of peers: time, bandwidth and bytes on links."""
    if preset is not None:
        _bars(rounds, output, as_json)
        return
    if local is not None and describes_lab(context):
        raise UsageError(
            "--local measures this machine without a lab, and other options describe a lab; leave"
            " one of them out"
        )
    network = (num_hosts, ranks_per_host, rate, flow_rate, racks, uplink, delay)
    defaults = CPU_PEERS if device == CPU else DEVICE_PEERS
    spec = CommSpec(
        collectives=split_list(collectives),
        sizes=tuple(parse_bytes(size, least=4) for size in split_list(sizes)),
        lab=lab_spec(*network) if local is None else None,
        local=local or 0,
        codecs=split_list(codecs),
        peers=defaults if peers is None else split_peers(peers),
        rounds=rounds,
        cross_traffic=cross_traffic,
        device=device,
        relay=relay,
    )
    with status_line() as tell:
        report = measure(spec, tell)
    emit(
        comm_table.as_json(report),
        comm_table.tables(report),
        as_json=as_json,
        output=output,
        notes=report.notes,
    )


def _bars(rounds: int, output: Path | None, as_json: bool) -> None:
    outcomes: list[comm_bars.Outcome] = []
    with status_line() as tell:
        for outcome in comm_bars.run(comm_bars.cases(rounds=rounds), tell):
            outcomes.append(outcome)
            if outcome.report is None:
                remark(outcome.error, style="red")
            elif not as_json:
                show(comm_table.tables(outcome.report))
    tables: list[RenderableType] = [comm_bars.bars_table(outcomes)]
    emit(comm_bars.bars_as_json(outcomes), tables, as_json=as_json, output=output)
    if any(outcome.report is None for outcome in outcomes):
        raise typer.Exit(1)
