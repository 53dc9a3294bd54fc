"""`slipstream queue serve`: the daemon that starts the jobs of the queue."""

from __future__ import annotations

import logging

import typer

from slipstream.cli.output import remark
from slipstream.cli.progress import ending_on_signals
from slipstream.cli.queue.opening import opened_queue

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue serve                    until Ctrl-C; jobs go on without it
  systemd-run --user --unit slipstream-queue slipstream queue serve

Without any machine in the queue, this host is added with its processors, memory and GPUs.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("serve", epilog=EXAMPLES)(serve)


def serve() -> None:
    """Start jobs when their resources are free, until a signal ends the daemon."""
    from slipstream.cluster.queue import MachinePool, QueueDaemon
    from slipstream.cluster.queue.autoscaling.autoscale import scaling
    from slipstream.cluster.queue.runs.runner import every_runner
    from slipstream.cluster.queue.this_host import this_host

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with ending_on_signals(), opened_queue() as store:
        pool = MachinePool(store)
        if not pool.machines():
            pool.set_machine(this_host())
        names = ", ".join(machine.name for machine in pool.machines())
        remark(f"serving the queue in {store.home} on {names}")
        with scaling(store.home):
            QueueDaemon(store, every_runner(store.home)).serve(lambda: False)
