"""`slipstream queue serve`: the daemon that starts the jobs of the queue."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from slipstream.cli.output import remark
from slipstream.cli.progress import ending_on_signals
from slipstream.cli.queue.opening import opened_queue
from slipstream.units import parse_duration

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue serve                    until Ctrl-C; jobs go on without it
  slipstream queue serve --keep 7d          outputs and events of a week
  systemd-run --user --unit slipstream-queue slipstream queue serve

Without any machine in the queue, this host is added with its processors, memory and GPUs.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("serve", epilog=EXAMPLES)(serve)


def serve(
    keep: Annotated[
        str,
        typer.Option(metavar="TIME", help="Time for which outputs and events of jobs are kept."),
    ] = "30d",
    keep_starts: Annotated[
        int, typer.Option(min=0, help="Largest number of ended starts whose output is kept.")
    ] = 10_000,
) -> None:
    """Start jobs when their resources are free, until a signal ends the daemon."""
    from slipstream.cluster.queue import MachinePool, QueueDaemon
    from slipstream.cluster.queue.autoscaling.autoscale import scaling
    from slipstream.cluster.queue.autoscaling.scaled_group import read_scaled_group
    from slipstream.cluster.queue.housekeeping import KeepRules
    from slipstream.cluster.queue.runs.runner import every_runner
    from slipstream.cluster.queue.this_host import this_host

    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%Y-%m-%d %H:%M:%S")
    logging.getLogger("slipstream").setLevel(logging.INFO)
    rules = KeepRules(seconds=parse_duration(keep, "--keep"), max_starts=keep_starts)
    with ending_on_signals(), opened_queue() as store:
        pool = MachinePool(store)
        with store.transaction() as session:
            scaled = read_scaled_group(session)
        if scaled is None and not pool.machines():
            pool.set_machine(this_host())
        names = ", ".join(machine.name for machine in pool.machines())
        more = f"up to {scaled.max_machines} machines of {scaled.group}" if scaled else ""
        on = " and ".join(filter(None, (names, more)))
        remark(f"serving the queue in {store.home} on {on}")
        with scaling(store.home):
            QueueDaemon(store, every_runner(store.home), keep=rules).serve(lambda: False)
