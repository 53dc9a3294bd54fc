"""`slipstream bench negotiate`: how fast ranks agree on an order of tensors."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from slipstream.bench.negotiate.measure import NegotiateSpec, measure
from slipstream.bench.negotiate.table import as_json, tables
from slipstream.cli.bench.show import telling, write
from slipstream.cli.files import writable
from slipstream.errors import UsageError
from slipstream.lab.display import make_console

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream bench negotiate
  slipstream bench negotiate --ranks 4 --tensors 161 --cycle 0
  slipstream bench negotiate --scaling build/bench/core/bench/negotiate_bench --json out.json
"""


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`."""
    app.command("negotiate", epilog=EXAMPLES)(negotiate)


def negotiate(
    ranks: Annotated[
        str, typer.Option(help="Numbers of processes, separated by commas.")
    ] = "4,8,16",
    tensors: Annotated[
        int, typer.Option(help="Tensors of 1 KB, in a different order on each rank.")
    ] = 1000,
    rounds: Annotated[int, typer.Option(help="Rounds; in each, every contender has one turn.")] = 5,
    cycle: Annotated[
        float, typer.Option(help="Least milliseconds between two of our rounds.")
    ] = 0.0,
    scaling: Annotated[
        Path | None,
        typer.Option(help="Program negotiate_bench, to measure up to 256 ranks as threads."),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", callback=writable, help="File for all measurements as JSON."),
    ] = None,
) -> None:
    """Measure negotiation: our ranks among themselves, beside a rank 0 that coordinates."""
    spec = NegotiateSpec(
        ranks=_numbers(ranks),
        tensors=tensors,
        rounds=rounds,
        cycle_seconds=cycle / 1e3,
        scaling=scaling,
    )
    with telling() as tell:
        report = measure(spec, tell)
    for table in tables(report):
        make_console(sys.stdout).print(table)
    write(json_file, as_json(report))


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"ranks are {text!r}; allowed: numbers with commas between, such as 4,8")
    return tuple(int(part) for part in parts)
