"""The commands of `slipstream queue` that show jobs: ls, show and events."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.options import AsJson
from slipstream.cli.output import emit
from slipstream.cli.queue.opening import OneJob, opened_queue

if TYPE_CHECKING:
    from rich.table import Table

    from slipstream.cluster.queue import JobRecord
    from slipstream.cluster.queue.shapes import Allocation

LS_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue ls
  slipstream queue ls --all                 also those that have ended
  slipstream queue ls --json
"""
SHOW_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue show 3
  slipstream queue show 3 --json
"""
EVENTS_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue events                   the newest of all jobs
  slipstream queue events 3
  slipstream queue events --newest 1000 --json
"""


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("ls", epilog=LS_EXAMPLES)(ls)
    app.command("show", epilog=SHOW_EXAMPLES)(show_job)
    app.command("events", epilog=EVENTS_EXAMPLES)(events)


def ls(
    all_jobs: Annotated[
        bool, typer.Option("--all", help="List jobs that have ended, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the jobs: who runs where, and who waits for what."""
    from slipstream.cluster.queue import JobQueue

    with opened_queue() as store:
        jobs = JobQueue(store).jobs(ended=all_jobs)
        fields = [_fields(job, store.home) for job in jobs]
    emit(fields, [_job_table(jobs)] if jobs else ["the queue has no jobs"], as_json=as_json)


def show_job(job: OneJob, as_json: AsJson = False) -> None:
    """Show one job, and the file with its output."""
    from slipstream.cluster.queue import JobQueue

    with opened_queue() as store:
        record = JobQueue(store).job(job)
        fields = _fields(record, store.home)
    emit(fields, [_page(record, fields)], as_json=as_json)


def events(
    job: Annotated[
        int | None, typer.Argument(metavar="[JOB]", help="Number of a job; all jobs without it.")
    ] = None,
    newest: Annotated[int, typer.Option(min=1, help="Largest number of events.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Tell what happened, in order."""
    from rich.table import Table

    from slipstream.cluster.queue import JobQueue

    with opened_queue() as store:
        found = JobQueue(store).events(job, newest)
    table = Table("time", "job", "event", "")
    for event in found:
        table.add_row(_clock(event.time), str(event.job), event.kind, event.text)
    emit([asdict(event) for event in found], [table], as_json=as_json)


def _job_table(jobs: list[JobRecord]) -> Table:
    from rich.table import Table

    table = Table("job", "name", "user", "priority", "state", "needs", "on", "")
    for job in jobs:
        table.add_row(
            str(job.number),
            job.name,
            job.user,
            str(job.priority),
            job.state,
            _needs(job),
            _place(job.allocation) if job.state not in ("waiting", "held") else "",
            job.message or job.scaling,
        )
    return table


def _page(job: JobRecord, fields: dict[str, Any]) -> Table:
    from rich.table import Table

    from slipstream.cluster.queue.folders import RUN_PREFIX

    table = Table(show_header=False, box=None)
    rows = {
        "job": f"{job.number}, {job.name}",
        "state": f"{job.state}: {job.message}" if job.message else job.state,
        "user": f"{job.user} ({job.team})" if job.team else job.user,
        "priority": str(job.priority),
        "command": shlex.join(job.command),
        "folder": job.cwd,
        "needs": _needs(job),
        "on": _place(job.allocation),
        "hosts": job.scaling,
        "run": job.token if job.token.startswith(RUN_PREFIX) else "",
        "submitted": _clock(job.submitted_at),
        "started": _clock(job.started_at),
        "ended": _clock(job.ended_at),
        "starts": str(job.num_attempts),
        "output": str(fields["output"] or ""),
    }
    for name, text in rows.items():
        if text:
            table.add_row(name, text)
    return table


def _needs(job: JobRecord) -> str:
    from slipstream.cluster.queue.scheduler import describe

    request = job.request
    few, many = request.min_hosts, request.max_hosts
    text = describe(request)
    if many == 1:
        return text
    return f"{few if few == many else f'{few} to {many}'} hosts, each {text}"


def _place(allocation: Allocation) -> str:
    """Return machines with the numbers of their GPUs, such as "a: 0,1"."""
    parts: list[str] = []
    for share in allocation:
        gpus = ",".join(str(number) for number, _ in share.gpus)
        parts.append(f"{share.machine}: {gpus}" if gpus else share.machine)
    return "; ".join(parts)


def _fields(job: JobRecord, home: Path) -> dict[str, Any]:
    from slipstream.cluster.queue.folders import output_path

    output = str(output_path(home, job.token)) if job.token else None
    return {**asdict(job), "output": output}


def _clock(seconds: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""
