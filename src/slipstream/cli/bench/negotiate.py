"""`slipstream bench negotiate`: the time in which ranks agree on an order of tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipstream.bench.negotiate.measure import NegotiateSpec, measure
from slipstream.bench.negotiate.table import as_json as table_as_json
from slipstream.bench.negotiate.table import tables
from slipstream.cli.options import AsJson, OutputFile, Rounds, split_counts
from slipstream.cli.output import emit
from slipstream.cli.progress import status_line
from slipstream.units import parse_duration

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream bench negotiate
  slipstream bench negotiate --ranks 4 --tensors 161 --cycle-time 1ms
  slipstream bench negotiate --scaling build/bench/core/bench/negotiate_bench -o out.json
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("negotiate", epilog=EXAMPLES)(negotiate)


def negotiate(
    ranks: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="Numbers of ranks on this machine; each number is measured."
        ),
    ] = "4,8,16",
    tensors: Annotated[
        int,
        typer.Option(
            min=1, help="Number of 1 KB tensors; each rank submits them in an order of its own."
        ),
    ] = 1000,
    cycle_time: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Minimum time between two negotiations of Slipstream: 5ms."
        ),
    ] = "0s",
    scaling: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Program negotiate_bench, which measures up to 256 ranks as threads.",
        ),
    ] = None,
    rounds: Rounds = 5,
    output: OutputFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure negotiation without a coordinator, and compare it with coordination by rank 0."""
    spec = NegotiateSpec(
        ranks=split_counts(ranks, "--ranks"),
        tensors=tensors,
        rounds=rounds,
        cycle_seconds=parse_duration(cycle_time, "cycle time"),
        scaling=scaling,
    )
    with status_line() as tell:
        report = measure(spec, tell)
    emit(table_as_json(report), tables(report), as_json=as_json, output=output)
