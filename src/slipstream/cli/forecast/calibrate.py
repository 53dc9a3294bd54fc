"""`slipstream forecast calibrate`: measured rates of this machine instead of published ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from slipstream.cli.output import make_console, stderr_console

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream forecast calibrate
  slipstream forecast calibrate --name core --threads 1     a device is one core
  slipstream forecast calibrate --name node --comm between-hosts.json --out node.toml
  slipstream forecast resnet50 --batch 64 --own 1xnode --hardware node.toml

\b
The command measures a GPU if there is one, else the CPU: matrix products by data type,
convolutions, memory, host time per operator, and all-reduces between two ranks (or all GPUs) of
this host. --comm reads the output of slipstream bench comm --json between hosts with one rank
each. Nothing else should run meanwhile. The file has the format of Slipstream's own data files.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("calibrate", epilog=EXAMPLES)(calibrate)


def calibrate(
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("here.toml"),
    name: Annotated[str, typer.Option(help="Name of the device, for --own.")] = "here",
    comm: Annotated[
        Path | None, typer.Option(help="JSON file of bench comm with the network between hosts.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads of a rank. [dim]all: a host is one device[/dim]"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure for seconds only; the rates are inaccurate.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON too, for programs.")] = False,
) -> None:
    """Measure this machine in about a minute, for forecasts of jobs on it."""
    from slipstream.bench.forecast.calibrate import calibrate as measure
    from slipstream.forecast.calibrate import file
    from slipstream.forecast.calibrate.measured import tables

    with Progress(console=stderr_console(), transient=True) as bar:
        task = bar.add_task("", total=None)
        found = measure(
            name,
            network=comm,
            threads=threads,
            quick=quick,
            progress=lambda what, done, of: bar.update(
                task, description=what, completed=done, total=of
            ),
        )
    file.write(found, out)
    if as_json:
        print(json.dumps(tables(found), indent=1))
        return
    console = make_console(sys.stdout)
    console.print(file.text(tables(found)).strip(), markup=False, highlight=False, soft_wrap=True)
    network = f" --network {name}-network" if found.hosts else ""
    console.print(
        f"\nwritten to {out}; slipstream forecast MODEL --batch 64 --own 1x{name}{network}"
        f" --hardware {out}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
