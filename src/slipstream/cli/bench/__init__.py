"""`slipstream bench`: Slipstream compared with competing software and hardware limits."""

from __future__ import annotations

import typer

from slipstream.cli.groups import CommandLine

HELP = """Measure Slipstream, competing software (peers) and the limits of the links, by turns.

Most benchmarks make a lab of their own (Linux, root, iproute2). Nothing else should run on the
machine.
"""
EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream bench comm --local 2                 collectives, without root
  slipstream bench infer mobilenetv3_large        latency of a model by each engine
  slipstream bench train -o train.json            training in a lab
"""


def add_to(app: CommandLine) -> None:
    """Add the group of benchmarks to `app`."""
    app.add_lazy("bench", _add_commands, help=HELP, epilog=EXAMPLES)


def _add_commands(app: typer.Typer) -> None:
    from slipstream.cli.bench import (
        comm,
        forecast,
        images,
        infer,
        negotiate,
        plugin,
        replay,
        serve,
        train,
    )

    for module in (comm, train, replay, forecast, negotiate, plugin, infer, images, serve):
        module.add_to(app)
