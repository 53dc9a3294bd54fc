"""`slipstream doctor`: one screen about what this host has and what it lacks."""

import json
import os
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slipstream.cli.findings import Finding, find_everything

MARKS = {"ok": ("ok", "green"), "absent": ("-", "dim"), "wrong": ("!!", "bold red")}


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`."""
    app.command("doctor")(doctor)


def doctor(
    peer: Annotated[
        str | None,
        typer.Option(help="Host to which the route is looked up; default: the default route."),
    ] = None,
    algorithms: Annotated[
        bool, typer.Option(help="Show the rules by which algorithms are chosen instead.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Show what this host has and what it lacks. Exit code 1 if Slipstream cannot work here."""
    if algorithms:
        _console().print(_algorithms())
        return
    findings = find_everything(os.environ, peer)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        console = _console()
        console.print(_screen(findings))
        for finding in findings:
            if finding.remedy:
                console.print(_remedy(finding))
    raise typer.Exit(int(any(finding.state == "wrong" for finding in findings)))


def _console() -> Console:
    """Return standard output; without colours, bold and dim stay away as well."""
    plain = Console(highlight=False).no_color
    return Console(highlight=False, color_system=None if plain else "auto")


def _algorithms() -> Table:
    from slipstream import _core  # absent where the rest of the doctor must still work

    table = Table(
        "collective", "algorithm", "bytes", "ranks", title="The first row that fits counts"
    )
    last = ""
    for line in _core.algorithm_table().splitlines():
        collective, *cells = line.split("\t")
        table.add_row(collective if collective != last else "", *cells)
        last = collective
    return table


def _screen(findings: list[Finding]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=2, justify="right")
    table.add_column(width=14)
    table.add_column(overflow="fold")
    topic = ""
    for finding in findings:
        if finding.topic != topic:
            topic = finding.topic
            table.add_row("", Text(topic, style="bold"), "")
        mark, style = MARKS[finding.state]
        text = Text(finding.text, style="" if finding.state == "ok" else style)
        table.add_row(Text(mark, style=style), finding.name, text)
    return table


def _remedy(finding: Finding) -> Text:
    label = "To do" if finding.state == "wrong" else "Optional"
    return Text.assemble((f"{label}: ", "bold"), f"{finding.name}: {finding.remedy}")
