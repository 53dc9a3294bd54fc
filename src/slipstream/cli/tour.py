"""`slipstream tour`: the whole way of one model on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from slipstream.lab.display import make_console, stderr_console

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream tour
  slipstream tour --ranks 4 --epochs 3 --output /tmp/tour
  slipstream tour --quick --json

\b
It forecasts the training of a small ResNet on Fashion-MNIST on this machine, trains it, shows
both side by side, compiles the checkpoint, serves it and classifies pictures over REST. Nothing
else should run meanwhile: a busy machine is not the one that was forecast.
[bold]Exit code[/bold]: 1 where a step fails, 2 for wrong usage or where the pictures are missing.
"""


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`."""
    app.command("tour", epilog=EXAMPLES)(tour)


def tour(
    output: Annotated[
        Path, typer.Option(help="Folder for the checkpoint, the package and the charts.")
    ] = Path("tour-output"),
    ranks: Annotated[
        int,
        typer.Option("--ranks", "-n", min=1, help="Ranks of the training, each on its own core."),
    ] = 2,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Epochs; default: 10 as in the demo, or as many as fit in 2 minutes."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Take half a minute; the numbers are inaccurate.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON to stdout, everything else to stderr.")
    ] = False,
) -> None:
    """Forecast, train, compile, serve and ask one model, in less than five minutes."""
    from slipstream.tour import example

    example.check_packages()
    from slipstream.tour.display import Terminal
    from slipstream.tour.guide import TourSpec
    from slipstream.tour.guide import tour as go
    from slipstream.tour.results import as_json as written

    stream = sys.stderr if as_json else sys.stdout
    spec = TourSpec(output=output, ranks=ranks, epochs=epochs, quick=quick, stream=stream)
    terminal = Terminal(make_console(stream), stderr_console())
    try:
        toured = go(spec, terminal)
    finally:
        terminal.close()
    terminal.end(toured.package, toured.seconds)
    if as_json:
        print(json.dumps(written(toured), indent=1))
