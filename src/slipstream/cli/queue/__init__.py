"""`slipstream queue`: several jobs on one set of machines."""

from __future__ import annotations

from importlib.util import find_spec

import typer

from slipstream.cli.groups import CommandLine
from slipstream.errors import UsageError

HELP = """Share machines between jobs.

Jobs wait until their GPUs are free, and `ls` says for what. A daemon starts them, here or on hosts
over ssh; it may be killed at any time, and the next one goes on.
"""

# A line of \b keeps the line ends of its paragraph.
EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue serve                    the daemon; it needs no terminal
  slipstream queue machines add node1 node2
  slipstream queue submit job.yaml          on as many hosts as the job needs
  slipstream queue submit --gpus 2 train.py --lr 0.1
  slipstream queue submit --gpus 1 --gpu-memory 20GiB --time 2h train.py
  slipstream queue ls                       who runs, and who waits for what
  slipstream queue show 3
  slipstream queue cancel 3
  slipstream queue top 4                    before all others
  slipstream queue quota ann --max-gpus 4
  slipstream queue events 3
"""


def add_to(app: CommandLine) -> None:
    """Add the group of commands to `app`."""
    app.add_lazy("queue", _add_commands, help=HELP, epilog=EXAMPLES)


def _add_commands(app: typer.Typer) -> None:
    if find_spec("sqlalchemy") is None:
        raise UsageError(
            "the queue needs the package sqlalchemy, which is not installed; run:"
            " pip install 'slipstream[cluster]'"
        )
    from slipstream.cli.queue import autoscale, change, look, machines, scale, serve, submit

    serve.add_to(app)
    submit.add_to(app)
    look.add_to(app)
    change.add_to(app)
    machines.add_to(app)
    scale.add_to(app)
    autoscale.add_to(app)
