"""The `slipstream` command.

Each sub-command has a module or a folder of its own. A sub-command parses its options, builds a
config and calls one function of the library.

The exit code is 0 for success, 1 if the command failed, and 2 for wrong usage or a wrong setting;
`slipstream run` also returns the exit code of a failed rank.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Annotated, Any

import typer

from slipstream.cli import (
    ask,
    bench,
    checkpoints,
    cluster,
    doctor,
    explain,
    lab,
    queue,
    run,
    serve,
    tour,
)
from slipstream.cli import compile as compile_command
from slipstream.cli import forecast as forecast_command
from slipstream.cli.groups import CommandGroup, CommandLine
from slipstream.errors import ConfigError, SlipstreamError, UsageError

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream run -n 2 train.py              two ranks of a script on this host
  slipstream forecast resnet50 --batch 256  hardware, time and cost of its training
  slipstream compile model.onnx -o model.slip
  slipstream serve model.slip
  slipstream tour                           all of it with one model, in five minutes

[bold]Exit code[/bold]: 1 if the command failed, 2 for wrong usage or a wrong setting.
"""

# The order of the commands in --help: a first look, then the life of a model, then measurements.
ORDER = (
    "tour",
    "doctor",
    "forecast",
    "run",
    "cluster",
    "queue",
    "explain",
    "checkpoints",
    "compile",
    "serve",
    "ask",
    "lab",
    "bench",
)


class Slipstream(CommandGroup):
    """Group of all sub-commands; a list of them has the order of `ORDER`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of --help."""
        return sorted(super().list_commands(ctx), key=ORDER.index)


app = CommandLine(
    name="slipstream",
    cls=Slipstream,
    help="Forecast, launch, train, compile and serve: deep learning at the speed of the wire.",
    epilog=EXAMPLES,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version  # imported here because it takes 20 ms

        print(f"slipstream {version('slipstream')}")
        raise typer.Exit


@app.callback()
def start(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Accept the options that precede a sub-command."""
    del show_version


run.add_to(app)
cluster.add_to(app)
queue.add_to(app)
explain.add_to(app)
doctor.add_to(app)
checkpoints.add_to(app)
lab.add_to(app)
bench.add_to(app)
compile_command.add_to(app)
forecast_command.add_to(app)
serve.add_to(app)
ask.add_to(app)
tour.add_to(app)


def main() -> None:
    """Run the command line; print an error of Slipstream as one line, without a traceback."""
    try:
        _check_folder()
        app(prog_name="slipstream")
    except SlipstreamError as error:
        print(f"slipstream: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, (ConfigError, UsageError)) else 1)
    finally:
        gc.freeze()  # without the interpreter's last collection, a job's command ends 0.1 s sooner


def _check_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise UsageError(
            "the working directory was deleted; change to one that is there"
        ) from error
