"""`slipstream tour`: take one model from its forecast to its server on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.options import AsJson
from slipstream.cli.output import emit, make_console, stderr_console

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream tour
  slipstream tour --ranks 4 --epochs 3 -o /tmp/tour
  slipstream tour --quick --json

The tour forecasts the training of a small ResNet on Fashion-MNIST on this machine, trains it, shows
both side by side, compiles the checkpoint, serves it and classifies images over REST. Nothing else
should run meanwhile: on a busy machine the training is slower than its forecast.

[bold]Exit code[/bold]: 1 if a step fails, 2 for wrong usage or if the images are missing.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("tour", epilog=EXAMPLES)(tour)


def tour(
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FOLDER",
            help="Folder for the checkpoint, the package and the charts.",
        ),
    ] = Path("tour-output"),
    ranks: Annotated[
        int,
        typer.Option(
            "-n", "--ranks", min=1, help="Number of ranks that train, each on its own core."
        ),
    ] = 2,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="10, or as many as fit into 2 minutes",
            help="Number of epochs of the training.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Shorten the tour to half a minute; the numbers are inaccurate."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take one model from its forecast to a server, in five minutes."""
    from slipstream.tour import example

    example.check_packages()
    from slipstream.tour import results
    from slipstream.tour.display import Terminal
    from slipstream.tour.guide import TourSpec
    from slipstream.tour.guide import tour as go

    stream = sys.stderr if as_json else sys.stdout
    spec = TourSpec(output=output, ranks=ranks, epochs=epochs, quick=quick, stream=stream)
    terminal = Terminal(make_console(stream), stderr_console())
    try:
        toured = go(spec, terminal)
    finally:
        terminal.close()
    terminal.end(toured.package, toured.seconds)
    if as_json:
        emit(results.as_json(toured), [], as_json=True)
