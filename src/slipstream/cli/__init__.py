"""The `slipstream` command. One file per sub-command: parse, build a config, make one call.

Exit codes: 0 success; 1 it failed; 2 wrong usage or setting; `run` adds those of the ranks.
"""

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from slipstream.cli import ask, bench, doctor, lab, run, serve, tour
from slipstream.cli import compile as compile_command
from slipstream.cli import forecast as forecast_command
from slipstream.errors import ConfigError, SlipstreamError, UsageError

app = typer.Typer(
    name="slipstream",
    help="Forecast, launch, train, compile and serve: deep learning at the speed of the wire.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
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
    """Take the options that stand before a sub-command."""
    del show_version


run.add_to(app)
doctor.add_to(app)
lab.add_to(app)
bench.add_to(app)
compile_command.add_to(app)
forecast_command.add_to(app)
serve.add_to(app)
ask.add_to(app)
tour.add_to(app)


def main() -> None:
    """Run the command line; an error of ours is one line, not a traceback."""
    try:
        _check_folder()
        app(prog_name="slipstream")
    except SlipstreamError as error:
        print(f"slipstream: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, (ConfigError, UsageError)) else 1)


def _check_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise UsageError(
            "the working directory was deleted; change to one that is there"
        ) from error
