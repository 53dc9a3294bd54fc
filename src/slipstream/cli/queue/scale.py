"""`slipstream queue scale`: how many machines the jobs of the queue are worth."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.options import AsJson
from slipstream.cli.output import emit
from slipstream.cli.queue.opening import opened_queue
from slipstream.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from slipstream.cluster.queue.autoscaling.sizes import ScalingJob, ScalingPlan

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue scale --max-machines 8 --price 3.50
  slipstream queue scale --max-machines 8 --price 3.50 --waiting-price 10 --json

The command changes nothing; `slipstream queue autoscale` does. A job tells its speed with
slipstream.cluster.report_progress.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("scale", epilog=EXAMPLES)(scale)


# over budget: a parameter for each option of the command
def scale(
    max_machines: Annotated[int, typer.Option(min=1, help="Largest number of machines.")],
    price: Annotated[float, typer.Option(help="Price of a machine in US dollars per hour.")],
    min_machines: Annotated[int, typer.Option(min=0, help="Smallest number of machines.")] = 0,
    waiting_price: Annotated[
        float, typer.Option(help="Price of an hour until a job has ended, in US dollars.")
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Say how many machines there should be, and how many each job should have."""
    from slipstream.cluster.queue.autoscaling import sizes
    from slipstream.cluster.queue.shapes import counted

    if not price > 0 or waiting_price < 0 or min_machines > max_machines:
        raise UsageError(
            f"--price is {price:g}, --waiting-price {waiting_price:g}, --min-machines"
            f" {min_machines}; allowed: a price above 0, one from 0 on, and at most"
            f" {max_machines} machines"
        )
    policy = sizes.ScalingPolicy(
        min_machines=min_machines,
        max_machines=max_machines,
        machine_price=price,
        waiting_price=waiting_price,
    )
    jobs = _jobs()
    plan = sizes.scale(jobs, policy)
    title = (
        f"{counted(plan.machines, 'machine')}; idle ones are kept for {policy.idle_seconds:.0f} s"
    )
    emit(asdict(plan), [_table(jobs, plan), title], as_json=as_json)


def _jobs() -> list[ScalingJob]:
    """Return the jobs that run or wait with the speeds that they have told."""
    from slipstream.cluster.queue import JobQueue
    from slipstream.cluster.queue.autoscaling.resizing import job_rates
    from slipstream.cluster.queue.autoscaling.sizes import ScalingJob
    from slipstream.cluster.queue.shapes import ACTIVE_STATES

    with opened_queue() as store:
        records = [job for job in JobQueue(store).jobs() if job.state != "held"]
        with store.transaction() as session:
            rates = job_rates(session, store)
    return [
        ScalingJob(
            number=job.number,
            min_hosts=job.request.min_hosts,
            max_hosts=job.request.max_hosts,
            hosts=len(job.allocation) if job.state in ACTIVE_STATES else 0,
            rates=rates.get(job.number, {}),
        )
        for job in records
    ]


def _table(jobs: list[ScalingJob], plan: ScalingPlan) -> Table:
    from rich.table import Table

    table = Table("job", "has", "should have", "")
    for job in jobs:
        target = str(plan.hosts[job.number])
        table.add_row(str(job.number), str(job.hosts), target, plan.reasons[job.number])
    return table
