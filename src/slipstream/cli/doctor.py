"""`slipstream doctor`: show what works on this host, and what is missing or wrong."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.options import AsJson
from slipstream.cli.output import emit
from slipstream.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from slipstream.cli.findings import Finding

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream doctor
  slipstream doctor --route-to node7      the route to another host
  slipstream doctor --algorithms          the rules by which collectives choose algorithms
  slipstream doctor -H a,me@b             other hosts, and the network between them
  slipstream doctor --json

[bold]Exit code[/bold]: 1 if Slipstream cannot work here or on a host of -H, 2 for wrong usage.
"""
MARKS = {"ok": ("ok", "green"), "absent": ("-", "dim"), "wrong": ("!!", "bold red")}


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("doctor", epilog=EXAMPLES)(doctor)


def doctor(
    route_to: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            show_default="the default route",
            help="Host to which the route is looked up.",
        ),
    ] = None,
    algorithms: Annotated[
        bool,
        typer.Option("--algorithms", help="Show the rules by which collectives choose algorithms."),
    ] = False,
    hosts: Annotated[
        str | None,
        typer.Option(
            "-H", "--hosts", metavar="LIST", help="Hosts to examine by ssh, in pairs: a,me@b."
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            show_default="the path of this Python",
            help="Path of Python on the hosts of -H.",
        ),
    ] = None,
    ssh_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Option that ssh gets with -o, such as Port=2222; may be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what works on this host, what is missing or wrong, and how to mend it."""
    from slipstream.cli.findings import find_everything

    if hosts is not None and (algorithms or route_to):
        other = "--algorithms" if algorithms else "--route-to"
        raise UsageError(f"{other} is about this host, and -H about others; give one of them")
    if algorithms:
        rules = _rules()
        emit(rules, [_rules_table(rules)], as_json=as_json)
        return
    if hosts is not None:
        from slipstream.cli.findings.other_hosts import examine_hosts

        raise typer.Exit(examine_hosts(hosts, ssh_option or [], python, as_json=as_json))
    findings = find_everything(os.environ, route_to)
    remedies = [_remedy(finding) for finding in findings if finding.remedy]
    shown: list[RenderableType] = [_screen(findings), *remedies]
    emit([asdict(finding) for finding in findings], shown, as_json=as_json)
    raise typer.Exit(int(any(finding.state == "wrong" for finding in findings)))


def _rules() -> list[dict[str, str]]:
    """Return the rules by which collectives choose algorithms; the first match applies."""
    from slipstream import _core  # imported here, because the doctor must work without the core

    names = ("collective", "algorithm", "bytes", "ranks")
    lines = _core.algorithm_table().splitlines()
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines]


def _rules_table(rules: list[dict[str, str]]) -> Table:
    from rich.table import Table

    table = Table(
        "collective", "algorithm", "bytes", "ranks", title="The first row that fits counts"
    )
    last = ""
    for rule in rules:
        collective, *cells = rule.values()
        table.add_row(collective if collective != last else "", *cells)
        last = collective
    return table


def _screen(findings: list[Finding]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    table.add_column(width=2, justify="right")
    table.add_column(width=max(len(finding.name) for finding in findings))
    table.add_column()
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
    from rich.text import Text

    label = "To do" if finding.state == "wrong" else "Optional"
    return Text.assemble((f"{label}: ", "bold"), f"{finding.name}: {finding.remedy}")
