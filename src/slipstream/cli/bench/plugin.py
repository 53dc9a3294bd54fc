"""`slipstream bench plugin`: the NCCL plugin, compared with plain sockets and the link's limit."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.bench.plugin import table as plugin_table
from slipstream.bench.plugin.measure import PluginSpec, measure
from slipstream.cli.lab_spec import describes_lab, lab_spec
from slipstream.cli.options import (
    AsJson,
    FlowRate,
    OutputFile,
    Rate,
    Rounds,
    split_counts,
    split_list,
)
from slipstream.cli.output import emit
from slipstream.cli.progress import status_line
from slipstream.errors import UsageError
from slipstream.units import parse_bytes

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream bench plugin                         two lab hosts, flows capped at a quarter
  slipstream bench plugin --request-size 1m       requests as NCCL makes them
  slipstream bench plugin --flow-rate 400mbit,100mbit --streams 8
  slipstream bench plugin --local                 this machine, no root needed
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("plugin", epilog=EXAMPLES)(plugin)


# over budget: a parameter for each option of the command
def plugin(
    context: typer.Context,
    sizes: Annotated[
        str, typer.Option(metavar="LIST", help="Sizes of the messages: 1m,64m.")
    ] = "64m",
    request_size: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Maximum size of a request (NCCL's: 1m); larger messages are split.",
        ),
    ] = "64m",
    streams: Annotated[
        str, typer.Option(metavar="LIST", help="Numbers of TCP streams that the plugin uses.")
    ] = "8,1",
    sockets: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="Numbers of plain sockets to compare with; 1 is NCCL's default."
        ),
    ] = "1,8",
    local: Annotated[
        bool, typer.Option("--local", help="Measure on this machine, without a lab.")
    ] = False,
    rounds: Rounds = 5,
    rate: Rate = "1gbit",
    flow_rate: FlowRate = "250mbit",
    output: OutputFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure the NCCL plugin without NCCL and GPUs: one rank sends and another receives."""
    if local and describes_lab(context):
        raise UsageError(
            "--local measures this machine without a lab, and other options describe a lab; leave"
            " one of them out"
        )
    spec = PluginSpec(
        lab=None if local else lab_spec(2, rate=rate, flow_rate=flow_rate or None),
        sizes=tuple(parse_bytes(size, least=1) for size in split_list(sizes)),
        request_bytes=parse_bytes(request_size, least=1),
        streams=split_counts(streams, "--streams"),
        sockets=split_counts(sockets, "--sockets"),
        rounds=rounds,
    )
    with status_line() as tell:
        report = measure(spec, tell)
    emit(plugin_table.as_json(report), plugin_table.tables(report), as_json=as_json, output=output)
