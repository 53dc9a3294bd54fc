"""`slipstream cluster`: runs on any engine, their hosts, and what they cost."""

from __future__ import annotations

import typer

from slipstream.cli.groups import CommandLine

HELP = """Look after runs and the machines that they use.

`slipstream run job.yaml` starts a run. Its record stays here, so it can be followed, ended and run
again by its name from any terminal of this machine.
"""

# A line of \b keeps the line ends of its paragraph.
EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream run job.yaml --on ssh --detach
  slipstream cluster ls                     all runs, the newest first
  slipstream cluster attach train           follow a run; its first Ctrl-C ends the job
  slipstream cluster logs train --rank 0
  slipstream cluster events train           all that happened, in order
  slipstream cluster ssh train node1
  slipstream cluster down train             end it and give everything back
  slipstream cluster replay train           run it again
"""


def add_to(app: CommandLine) -> None:
    """Add the group of commands to `app`."""
    app.add_lazy("cluster", _add_commands, help=HELP, epilog=EXAMPLES)


def _add_commands(app: typer.Typer) -> None:
    from slipstream.cli.cluster import hosts, look, machines, mount, runs, spending

    runs.add_to(app)
    hosts.add_to(app)
    look.add_to(app)
    machines.add_to(app)
    mount.add_to(app)
    spending.add_to(app)
