"""`slipstream queue autoscale`: machines of a group come when jobs need them, and go again."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.options import AsJson
from slipstream.cli.output import emit, remark
from slipstream.cli.queue.opening import opened_queue, wake_daemon
from slipstream.errors import UsageError
from slipstream.units import parse_duration

if TYPE_CHECKING:
    from rich.table import Table

    from slipstream.cluster.groups.machine_group import MachineGroup
    from slipstream.cluster.queue import JobRecord, QueueMachine, QueueStore
    from slipstream.cluster.queue.autoscaling.scaled_group import ScaledGroup

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream cluster up pool --on aws --type g4dn.xlarge
  slipstream queue autoscale pool --max-machines 8
  slipstream queue autoscale pool --min-machines 1 --max-machines 8 --waiting-price 10
  slipstream queue autoscale                what is there, and why jobs have their machines
  slipstream queue autoscale --off          the machines stay until their deadline

The daemon creates and releases the machines, and moves their deadline on as long as it lives.
Without it, they end themselves at the deadline.
"""
OFF = "no group of machines is scaled"


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("autoscale", epilog=EXAMPLES)(autoscale)


# over budget: a parameter for each option of the command
def autoscale(
    group: Annotated[
        str | None, typer.Argument(metavar="[GROUP]", help="Group of machines to scale.")
    ] = None,
    max_machines: Annotated[
        int, typer.Option(min=1, help="Largest number of machines of the group.")
    ] = 1,
    min_machines: Annotated[
        int, typer.Option(min=0, help="Smallest number of machines of the group.")
    ] = 0,
    price: Annotated[
        float | None,
        typer.Option(
            show_default="that of the provider",
            help="Price of a machine in US dollars per hour.",
        ),
    ] = None,
    waiting_price: Annotated[
        float, typer.Option(help="Price of an hour until a job has ended, in US dollars.")
    ] = 1.0,
    idle: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            show_default="what a new one would cost",
            help="Time for which an idle machine is kept.",
        ),
    ] = None,
    lease: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Time by which the daemon moves the group's deadline on."
        ),
    ] = "2h",
    settle: Annotated[
        str,
        typer.Option(metavar="TIME", help="Time for which a job runs before its size is changed."),
    ] = "2m",
    off: Annotated[bool, typer.Option("--off", help="Scale no group any more.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Allow the cost without being asked.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let the daemon create and release the machines of a group as jobs need them."""
    from slipstream.cluster.queue.autoscaling.resizing import forget_sizes
    from slipstream.cluster.queue.autoscaling.scaled_group import write_scaled_group

    with opened_queue() as store:
        if off:
            write_scaled_group(store, None)
            forget_sizes(store)
        elif group is not None:
            prices = _prices(group, price, waiting_price)
            times = _times(idle, lease, settle)
            chosen = _chosen(group, (min_machines, max_machines), prices, times)
            if not yes:
                _confirm(chosen)
            write_scaled_group(store, chosen)
        _show(store, as_json)
    if group is not None:
        wake_daemon()


def _prices(name: str, price: float | None, waiting_price: float) -> tuple[float, float]:
    """Return the prices of an hour of a machine and of an hour of waiting in US dollars."""
    from slipstream.cluster.groups.group_session import GroupSession
    from slipstream.settings import home_folder

    if waiting_price < 0 or (price is not None and price <= 0):
        raise UsageError(
            f"--price is {price}, --waiting-price {waiting_price:g}; allowed: a price above 0, and"
            " one from 0 on"
        )
    group = GroupSession(home_folder()).open(name)
    return (_price(group) if price is None else price), waiting_price


def _times(idle: str | None, lease: str, settle: str) -> tuple[float | None, float, float]:
    """Return the times that were stated in seconds."""
    return (
        parse_duration(idle, "--idle") if idle else None,
        parse_duration(lease, "--lease"),
        parse_duration(settle, "--settle"),
    )


def _chosen(
    name: str,
    limits: tuple[int, int],
    prices: tuple[float, float],
    times: tuple[float | None, float, float],
) -> ScaledGroup:
    from slipstream.cluster.queue.autoscaling.scaled_group import ScaledGroup
    from slipstream.cluster.queue.autoscaling.sizes import ScalingPolicy

    least, most = limits
    if least > most:
        raise UsageError(
            f"--min-machines is {least}, --max-machines {most}; allowed: no more at least than at"
            " most"
        )
    policy = ScalingPolicy(
        min_machines=least,
        max_machines=most,
        machine_price=prices[0],
        waiting_price=prices[1],
    )
    idle, lease, settle = times
    return ScaledGroup(
        group=name,
        min_machines=least,
        max_machines=most,
        machine_price=prices[0],
        waiting_price=prices[1],
        idle_seconds=policy.idle_seconds if idle is None else idle,
        lease_seconds=lease,
        settle_seconds=settle,
    )


def _price(group: MachineGroup) -> float:
    """Return the present price of a machine of a group in US dollars per hour."""
    estimate = group.estimate()
    if not estimate.price_per_hour:
        raise UsageError(
            f"the price of the machines of {group.name} is not known; state it with --price"
        )
    return estimate.price_per_hour / estimate.num_machines


def _confirm(chosen: ScaledGroup) -> None:
    """Show what the machines may cost, and ask whether to create them."""
    most = chosen.max_machines * chosen.machine_price
    remark(
        f"up to {chosen.max_machines} machines of {chosen.group} for {most:.2f} US dollars an hour,"
        " as long as jobs need them",
        style="",
    )
    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked for the cost here; allow it with --yes")
    if not typer.confirm("Let the queue create these machines?", err=True):
        raise UsageError("the cost was not confirmed, so nothing is scaled")


def _show(store: QueueStore, as_json: bool) -> None:
    from slipstream.cluster.queue import JobQueue, MachinePool
    from slipstream.cluster.queue.autoscaling.scaled_group import read_scaled_group

    with store.transaction() as session:
        chosen = read_scaled_group(session)
    if chosen is None:
        emit({"group": None}, [OFF], as_json=as_json)
        return
    members = [m for m in MachinePool(store).machines() if m.group == chosen.group]
    jobs = [job for job in JobQueue(store).jobs() if job.scaling]
    fields = {
        **asdict(chosen),
        "machines": [machine.name for machine in members],
        "reasons": {job.number: job.scaling for job in jobs},
    }
    shown = [_page(chosen, members), *([_job_table(jobs)] if jobs else [])]
    emit(fields, shown, as_json=as_json)


def _page(chosen: ScaledGroup, members: list[QueueMachine]) -> Table:
    from rich.table import Table

    table = Table(show_header=False, box=None)
    names = ", ".join(machine.name for machine in members) or "none"
    rows = {
        "group": chosen.group,
        "machines": f"{names} ({chosen.min_machines} to {chosen.max_machines})",
        "prices": f"{chosen.machine_price:g} US dollars an hour for a machine,"
        f" {chosen.waiting_price:g} for waiting",
        "idle": f"kept for {_minutes(chosen.idle_seconds)}",
        "deadline": f"moved on by {_minutes(chosen.lease_seconds)} while a daemon lives",
        "problem": chosen.problem,
    }
    for name, text in rows.items():
        if text:
            table.add_row(name, text)
    return table


def _job_table(jobs: list[JobRecord]) -> Table:
    from rich.table import Table

    table = Table("job", "name", "state", "hosts", "")
    for job in jobs:
        num_hosts = len(job.allocation) if job.started_at else 0
        table.add_row(str(job.number), job.name, job.state, str(num_hosts), job.scaling)
    return table


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.3g} min" if seconds >= 60 else f"{seconds:.3g} s"
