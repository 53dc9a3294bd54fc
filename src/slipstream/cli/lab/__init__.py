"""`slipstream lab`: hosts on this machine with links of chosen rates, and programs on them."""

from __future__ import annotations

import typer

from slipstream.cli.groups import CommandLine

HELP = """Try a program on several hosts that this machine emulates.

Each host is a network namespace. You choose the bit rates of the links, limits per connection, and
racks. The lab needs Linux, root and iproute2.
"""

# A line of \b keeps the line ends of its paragraph.
EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream lab up --num-hosts 4 --rate 1gbit --flow-rate 250mbit
  slipstream lab run -- train.py --lr 0.1   one process per rank
  slipstream lab compare -- train.py        over gloo, then over Slipstream
  slipstream lab link 2 --rate 100mbit      a slow host; --cut pulls its cable
  slipstream lab status
  slipstream lab down
"""


def add_to(app: CommandLine) -> None:
    """Add the group of commands to `app`."""
    app.add_lazy("lab", _add_commands, help=HELP, epilog=EXAMPLES)


def _add_commands(app: typer.Typer) -> None:
    from slipstream.cli.lab import commands, present

    commands.add_to(app)
    present.add_to(app)
