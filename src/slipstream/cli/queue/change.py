"""The commands of `slipstream queue` that change jobs: cancel, hold, release and top."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.options import AsJson
from slipstream.cli.output import emit
from slipstream.cli.queue.opening import Jobs, OneJob, opened_queue, wake_daemon

CANCEL_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue cancel 3
  slipstream queue cancel 3 4 5

A running job gets SIGTERM, and SIGKILL after its --grace.
"""
HOLD_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue hold 3
"""
RELEASE_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue release 3
"""
TOP_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue top 3                    before all others that wait
  slipstream queue top 3 --priority 5
"""


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("cancel", epilog=CANCEL_EXAMPLES)(cancel)
    app.command("hold", epilog=HOLD_EXAMPLES)(hold)
    app.command("release", epilog=RELEASE_EXAMPLES)(release)
    app.command("top", epilog=TOP_EXAMPLES)(top)


def cancel(jobs: Jobs, as_json: AsJson = False) -> None:
    """Cancel jobs; those that run are told to end."""
    from slipstream.cluster.queue import JobQueue

    with opened_queue() as store:
        queue = JobQueue(store)
        states = {number: queue.cancel(number) for number in jobs}
    _tell(states, as_json)


def hold(jobs: Jobs, as_json: AsJson = False) -> None:
    """Let waiting jobs wait until they are released."""
    from slipstream.cluster.queue import JobQueue

    with opened_queue() as store:
        queue = JobQueue(store)
        for number in jobs:
            queue.hold(number)
    _tell(dict.fromkeys(jobs, "held"), as_json)


def release(jobs: Jobs, as_json: AsJson = False) -> None:
    """Let held jobs start when they can."""
    from slipstream.cluster.queue import JobQueue

    with opened_queue() as store:
        queue = JobQueue(store)
        for number in jobs:
            queue.release(number)
    _tell(dict.fromkeys(jobs, "waiting"), as_json)


def top(
    job: OneJob,
    priority: Annotated[
        int | None, typer.Option(show_default="above all others", help="Priority of the job.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give a job the highest priority of those that wait, or a chosen one."""
    from slipstream.cluster.queue import JobQueue

    with opened_queue() as store:
        chosen = JobQueue(store).set_priority(job, priority)
    emit({"job": job, "priority": chosen}, [f"job {job}: priority {chosen}"], as_json=as_json)
    wake_daemon()


def _tell(states: dict[int, str], as_json: bool) -> None:
    lines = [f"job {number}: {state}" for number, state in states.items()]
    fields = [{"job": number, "state": state} for number, state in states.items()]
    emit(fields, lines, as_json=as_json)
    wake_daemon()
