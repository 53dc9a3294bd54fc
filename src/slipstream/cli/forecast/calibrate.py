"""`slipstream forecast calibrate`: measure the speed of this machine for forecasts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.options import AsJson, file_option
from slipstream.cli.output import emit, remark, stderr_console

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream forecast calibrate
  slipstream forecast calibrate --name core --threads 1     a device is one core
  slipstream forecast calibrate --name node --comm between-hosts.json -o node.toml
  slipstream forecast resnet50 --batch 64 --own 1xnode --hardware node.toml

The command measures a GPU if there is one, else the CPU: matrix products by data type,
convolutions, memory, host time per operator, and all-reduces between two ranks (or all GPUs) of
this host. --comm reads the output file of slipstream bench comm between hosts with one rank each.
Nothing else should run meanwhile. The file has the format of Slipstream's own data files.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("calibrate", epilog=EXAMPLES)(calibrate)


def calibrate(
    output: Annotated[
        Path, file_option("-o", "--output", help="File for the measured speeds.", group=None)
    ] = Path("here.toml"),
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Name that --own accepts for the measured device.")
    ] = "here",
    comm: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Results of `slipstream bench comm` as JSON, for the network between hosts.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, show_default="all: a host is one device", help="Number of CPU threads of a rank."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure for seconds only; the speeds are inaccurate.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure this machine in about a minute, for forecasts of training on it."""
    from rich.progress import Progress
    from rich.text import Text

    from slipstream.bench.forecast.calibrate import calibrate as measure
    from slipstream.forecast.calibrate import file
    from slipstream.forecast.calibrate.measured import tables

    console = stderr_console()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        calibration = measure(
            name,
            network=comm,
            threads=threads,
            quick=quick,
            progress=lambda step, done, total: bar.update(
                task, description=step, completed=done, total=total
            ),
        )
    file.write(calibration, output)
    content = tables(calibration)
    text = Text(file.text(content).strip(), no_wrap=True, overflow="ignore")
    emit(content, [text], as_json=as_json)
    network = f" --network {name}-network" if calibration.hosts else ""
    remark(
        f"written: {output}; use it with slipstream forecast MODEL --batch 64 --own"
        f" 1x{name}{network} --hardware {output}",
        style="",
    )
