"""The commands of `slipstream lab` about labs that are up: link, status and down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.options import AsJson
from slipstream.cli.output import emit, remark
from slipstream.errors import UsageError
from slipstream.lab import Lab
from slipstream.lab import registry as labs
from slipstream.lab.display import lab_fields, lab_table

if TYPE_CHECKING:
    from rich.console import RenderableType

DEFAULT_NAME = "lab"

LINK_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream lab link 2 --rate 100mbit        host 2 is slow
  slipstream lab link 2 --cut                 its cable is pulled
  slipstream lab link 2 --mend
  slipstream lab link uplinks --rate 200mbit  between racks and the spine
"""
STATUS_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream lab status
  slipstream lab status --json
"""
DOWN_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream lab down
  slipstream lab down --name racks
  slipstream lab down --all
"""

Name = Annotated[
    str, typer.Option(metavar="NAME", help="Name of the lab; several labs need different names.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("link", epilog=LINK_EXAMPLES)(link)
    app.command("status", epilog=STATUS_EXAMPLES)(status)
    app.command("down", epilog=DOWN_EXAMPLES)(down)


def link(
    host: Annotated[
        str,
        typer.Argument(metavar="HOST", help='Number of the host whose link changes, or "uplinks".'),
    ],
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="New bit rate of the link in both directions."),
    ] = None,
    cut: Annotated[bool, typer.Option("--cut", help="Pull the cable.")] = False,
    mend: Annotated[bool, typer.Option("--mend", help="Undo --cut.")] = False,
    name: Name = DEFAULT_NAME,
) -> None:
    """Change, cut or mend a link, also while a program runs."""
    if (rate is not None) + cut + mend != 1:
        raise UsageError("give one of --rate, --cut and --mend")
    lab = Lab.attach(name)
    if host == "uplinks":
        if rate is None:
            raise UsageError("uplinks can be changed with --rate; cut the links of their hosts")
        lab.change_uplinks(rate=rate)
    elif not host.isdecimal():
        raise UsageError(f"the host is {host!r}; allowed: its number, or uplinks")
    elif rate is not None:
        lab.change(int(host), rate=rate)
    elif cut:
        lab.cut(int(host))
    else:
        lab.mend(int(host))


def status(as_json: AsJson = False) -> None:
    """Show all labs, their links and the traffic on them."""
    records = labs.load_all()
    stale = [record.name for record in records if record.is_stale]
    present = [Lab.attach(record.name) for record in records if record.name not in stale]
    shown: list[RenderableType] = [lab_table(lab) for lab in present]
    shown += [
        f"{name}: gone; remove its remains: slipstream lab down --name {name}" for name in stale
    ]
    if not records:
        shown.append("no lab is up; make one: slipstream lab up")
    fields = [*map(lab_fields, present), *({"name": name, "is_stale": True} for name in stale)]
    emit(fields, shown, as_json=as_json)


def down(
    name: Name = DEFAULT_NAME,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Remove all labs except those whose owner process still runs."),
    ] = False,
) -> None:
    """Take a lab down, and end the programs in it."""
    if everything:
        for record in labs.load_all():
            if record.owner is None or record.is_stale:
                labs.take_down(record)
            else:
                remark(f"{record.name} belongs to process {record.owner[0]}")
        return
    record = labs.load(name)
    if record is None:
        raise UsageError(f"there is no lab named {name!r}; see slipstream lab status")
    labs.take_down(record)
