"""The commands of `slipstream cluster` about runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.cluster.examples import examples
from slipstream.cli.cluster.outcome_lines import outcome_lines
from slipstream.cli.cluster.view import JsonView, TerminalView
from slipstream.cli.options import AsJson
from slipstream.cli.output import emit, remark

if TYPE_CHECKING:
    from rich.table import Table

    from slipstream.cluster.control.session import RunSession
    from slipstream.cluster.groups.machine_group import MachineGroup
    from slipstream.cluster.records import RunRecord

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the run, or #NUMBER.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("ls", epilog=examples("ls"))(list_runs)
    app.command("status", epilog=examples("status"))(status)
    app.command("attach", epilog=examples("attach"))(attach)
    app.command("logs", epilog=examples("logs"))(logs)
    app.command("events", epilog=examples("events"))(events)
    app.command("down", epilog=examples("down"))(down)
    app.command("replay", epilog=examples("replay"))(replay)


def list_runs(
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="List the runs that have ended as well.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs that go on, the newest first, and the groups of machines."""
    from rich.table import Table

    from slipstream.cli.cluster.group_view import listed_groups
    from slipstream.cluster.records import ResourceLedger

    session = open_session()
    records = [run for run in session.log.all() if everything or not run.has_ended][::-1]
    table = Table("run", "engine", "state", "started", "took", "hosts", "why")
    for run in records:
        hosts = run.spec["hosts"]
        span = (
            str(hosts["max"]) if hosts["min"] == hosts["max"] else f"{hosts['min']}:{hosts['max']}"
        )
        table.add_row(
            f"{run.name} #{run.number}",
            run.engine,
            run.state,
            f"{datetime.fromtimestamp(run.created_at):%Y-%m-%d %H:%M}",
            _duration(run),
            span,
            run.message,
        )
    shown: list[Any] = [table] if records else ["no run goes on; --all lists those that have ended"]
    groups, group_tables = listed_groups(session.home, ResourceLedger(session.store))
    emit([*map(_entry, records), *groups], [*shown, *group_tables], as_json=as_json)


def status(name: Name, as_json: AsJson = False) -> None:
    """Show the state of a run, its stages and its hosts, or the machines of a group."""
    session = open_session()
    group = open_group(session, name)
    if group is not None:
        from slipstream.cli.cluster.group_view import show_group

        entry, shown = show_group(group)
        emit(entry, shown, as_json=as_json)
        return
    run = session.log.find(name)
    stages = [event.facts for event in session.log.events(run.number) if event.kind == "stage"]
    emit({**_entry(run), "stages": stages}, _status(run, stages), as_json=as_json)


def attach(name: Name, as_json: AsJson = False) -> None:
    """Follow a run to its end; the first Ctrl-C ends the job, the second one leaves it alone."""
    view = JsonView() if as_json else TerminalView()
    session = open_session()
    run = session.log.find(name)
    if run.has_ended:
        remark(f"{run.name} has {run.state}; its output: slipstream cluster logs {run.name}")
        raise typer.Exit(run.exit_code or 0)
    controller = session.open(name, view)
    controller.start()
    raise typer.Exit(controller.follow())


def logs(
    name: Name,
    rank: Annotated[int | None, typer.Option(min=0, help="Rank whose lines are shown.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the output of a run, as far as this machine has seen it."""
    from slipstream.cluster.control.seen import SeenJournal
    from slipstream.cluster.head.journal import parse_journal

    session = open_session()
    run = session.log.find(name)
    view = JsonView() if as_json else TerminalView()
    seen = SeenJournal(session.home / "runs" / f"{run.name}-{run.number}")
    for entry in _chosen(parse_journal(seen.text), rank):
        view.entry(entry)
    if not run.has_ended:
        remark(f"the run goes on; follow it: slipstream cluster attach {run.name}")


def events(name: Name, as_json: AsJson = False) -> None:
    """Tell in order what happened to a run."""
    from rich.table import Table
    from rich.text import Text

    session = open_session()
    found = session.log.events(session.log.find(name).number)
    table = Table("time", "kind", "event")
    for event in found:
        moment = datetime.fromtimestamp(event.time)
        table.add_row(f"{moment:%Y-%m-%d %H:%M:%S}", event.kind, Text(event.text))
    entries = [
        {"time": event.time, "kind": event.kind, "text": event.text, "facts": dict(event.facts)}
        for event in found
    ]
    emit(entries, [table], as_json=as_json)


def down(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of runs or groups.")],
) -> None:
    """End runs and groups of machines, and give back everything that they use."""
    session = open_session()
    for name in names:
        group = open_group(session, name)
        if group is not None:
            group.down(remark)
            remark(f"the machines of {name} are given back", style="")
            continue
        run = session.log.find(name)
        if run.has_ended:
            remark(f"{run.name} has ended already: {run.state}")
            continue
        session.open(name, TerminalView()).cancel()
        remark(f"{run.name} is ended, and everything is given back", style="")


def replay(
    name: Name,
    new_name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the new run.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Create machines without asking for the cost.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a job again as it was described; changes of the code since then are named."""
    from pathlib import Path

    from slipstream.cli.cluster.cost import confirm_cost
    from slipstream.cluster.control.code_state import changes_since
    from slipstream.cluster.control.written_back import recorded_plan
    from slipstream.cluster.spec import check_job

    session = open_session()
    run = session.log.find(name)
    spec = check_job({**run.spec, "name": new_name or run.name}, f"the record of {name}")
    for change in changes_since(run.facts.get("code", {})):
        remark(change)
    view = JsonView() if as_json else TerminalView()
    confirm = None if yes else confirm_cost
    controller = session.submit(
        spec, Path(str(run.facts["base"])), view, confirm, recorded_plan(run.facts)
    )
    controller.start()
    raise typer.Exit(controller.follow())


def open_session() -> RunSession:
    """Return the runs of this user."""
    from slipstream.cluster.control.session import RunSession
    from slipstream.settings import home_folder

    return RunSession(home_folder())


def open_group(session: RunSession, name: str) -> MachineGroup | None:
    """Return the group of machines of a name, or None if there is none."""
    from slipstream.cluster.groups.group_record import GroupFolder
    from slipstream.cluster.groups.group_session import GroupSession

    if GroupFolder(session.home, name).read() is None:
        return None
    return GroupSession(session.home).open(name)


def _chosen(entries: Iterator[dict[str, Any]], rank: int | None) -> Iterator[dict[str, Any]]:
    for entry in entries:
        if rank is None or entry.get("event") != "line" or entry.get("rank") == rank:
            yield entry


def _entry(run: RunRecord) -> dict[str, Any]:
    return {
        "name": run.name,
        "number": run.number,
        "engine": run.engine,
        "state": run.state,
        "created_at": run.created_at,
        "deadline_at": run.deadline_at,
        "ended_at": run.ended_at,
        "exit_code": run.exit_code,
        "message": run.message,
        "spec": dict(run.spec),
        "facts": dict(run.facts),
    }


def _status(run: RunRecord, stages: list[Mapping[str, Any]]) -> list[Any]:
    lines = [f"{run.name} #{run.number} on {run.engine}: {run.state}"]
    if run.message:
        lines.append(f"why: {run.message}")
    if run.deadline_at is not None:
        moment = datetime.fromtimestamp(run.deadline_at)
        lines.append(f"deadline: {moment:%Y-%m-%d %H:%M:%S}")
    lines.append(f"command: {' '.join(run.spec['command'])}")
    lines += outcome_lines(run.facts)
    return ["\n".join(lines), *([_stages_table(stages)] if stages else [])]


def _stages_table(stages: list[Mapping[str, Any]]) -> Table:
    from rich.table import Table

    table = Table("stage", "host", "seconds")
    for stage in stages:
        table.add_row(str(stage["stage"]), str(stage["host"] or "all"), f"{stage['seconds']:.1f}")
    return table


def _duration(run: RunRecord) -> str:
    import time

    seconds = int((run.ended_at or time.time()) - run.created_at)
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"
