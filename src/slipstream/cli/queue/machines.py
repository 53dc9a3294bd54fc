"""The commands of `slipstream queue` for machines and quotas."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.options import AsJson
from slipstream.cli.output import emit
from slipstream.cli.queue.opening import opened_queue, wake_daemon
from slipstream.cli.queue.submit import parse_accelerators
from slipstream.errors import UsageError
from slipstream.units import MIB, parse_bytes

if TYPE_CHECKING:
    from rich.table import Table

    from slipstream.cluster.queue import QueueMachine
    from slipstream.cluster.queue.capacity import FreeCapacity

MACHINE = "A machine to add or change"

MACHINES_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue machines
  slipstream queue machines --add a --gpus 8 --gpu H100 --gpu-memory 80GiB --cpus 64
  slipstream queue machines --add a --cpus 64 --memory 512GiB --accelerator fpga=2
  slipstream queue machines --close a       finishes its jobs and gets no others
  slipstream queue machines --open a
  slipstream queue machines --remove a
"""
QUOTA_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue quota
  slipstream queue quota ann --max-gpus 4
  slipstream queue quota vision --team --max-gpus 16 --max-jobs 10
  slipstream queue quota ben --weight 2     twice the share of others
"""

Size = Annotated[str, typer.Option(metavar="SIZE", rich_help_panel=MACHINE, help="Memory: 512GiB.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("machines", epilog=MACHINES_EXAMPLES)(machines)
    app.command("quota", epilog=QUOTA_EXAMPLES)(quota)


# over budget: a parameter for each option of the command
def machines(
    add: Annotated[
        str | None, typer.Option(metavar="NAME", help="Add or change a machine.")
    ] = None,
    close: Annotated[
        str | None, typer.Option(metavar="NAME", help="Start no more jobs on a machine.")
    ] = None,
    reopen: Annotated[
        str | None, typer.Option("--open", metavar="NAME", help="Start jobs on it again.")
    ] = None,
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remove a machine without jobs.")
    ] = None,
    gpus: Annotated[int, typer.Option(min=0, rich_help_panel=MACHINE, help="Number of GPUs.")] = 0,
    gpu: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=MACHINE, help="Name of its GPUs.")
    ] = "GPU",
    gpu_memory: Annotated[
        str,
        typer.Option(metavar="SIZE", rich_help_panel=MACHINE, help="Memory of each GPU: 80GiB."),
    ] = "0",
    cpus: Annotated[
        int, typer.Option(min=1, rich_help_panel=MACHINE, help="Number of processors.")
    ] = 1,
    memory: Size = "0",
    accelerator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            rich_help_panel=MACHINE,
            help="Other devices, such as fpga=2; may be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the machines and what is free on them, or change them."""
    from slipstream.cluster.queue import JobQueue, MachinePool, QueueGpu, QueueMachine
    from slipstream.cluster.queue.capacity import FreeCapacity
    from slipstream.cluster.queue.shapes import ACTIVE_STATES

    if sum(name is not None for name in (add, close, reopen, remove)) > 1:
        raise UsageError("allowed: one of --add, --close, --open and --remove at a time")
    one = QueueGpu(kind=gpu, memory_mib=parse_bytes(gpu_memory, "--gpu-memory") // MIB)
    with opened_queue() as store:
        pool = MachinePool(store)
        if add is not None:
            machine = QueueMachine(
                name=add,
                gpus=(one,) * gpus,
                cpus=cpus,
                memory_mib=parse_bytes(memory, "--memory") // MIB,
                accelerators=parse_accelerators(accelerator or []),
            )
            pool.set_machine(machine)
        if close is not None or reopen is not None:
            pool.open_machine(close or reopen or "", close is None)
        if remove is not None:
            pool.remove_machine(remove)
        found = pool.machines()
        jobs = JobQueue(store).jobs()
    active = [job.allocation for job in jobs if job.state in ACTIVE_STATES]
    table = _machine_table(found, FreeCapacity.of(found, active))
    emit([asdict(machine) for machine in found], [table], as_json=as_json)
    if add or reopen:
        wake_daemon()


# over budget: a parameter for each option of the command
def quota(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="User or team; all without it.")
    ] = None,
    team: Annotated[bool, typer.Option("--team", help="The name is that of a team.")] = False,
    max_gpus: Annotated[
        float | None, typer.Option(min=0, help="Largest number of GPUs at a time.")
    ] = None,
    max_jobs: Annotated[
        int | None, typer.Option(min=0, help="Largest number of jobs at a time.")
    ] = None,
    weight: Annotated[float, typer.Option(help="Share relative to other users.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """List the quotas, or set the limits and the weight of a user or team."""
    from rich.table import Table

    from slipstream.cluster.queue import JobQueue, MachinePool
    from slipstream.cluster.queue.shapes import Quota

    with opened_queue() as store:
        pool = MachinePool(store)
        if name is not None:
            kind = "team" if team else "user"
            pool.set_quota(
                Quota(kind=kind, name=name, weight=weight, max_gpus=max_gpus, max_jobs=max_jobs)
            )
        found = pool.quotas()
        usage = JobQueue(store).usage()
    table = Table("", "name", "GPUs", "jobs", "weight", "GPU hours used")
    for one in found:
        limits = [_limit(one.max_gpus), _limit(one.max_jobs), f"{one.weight:g}"]
        used = f"{usage.get(one.name, 0.0) / 3600:.1f}" if one.kind == "user" else ""
        table.add_row(one.kind, one.name, *limits, used)
    fields = {"quotas": [asdict(one) for one in found], "gpu_seconds": usage}
    emit(fields, [table], as_json=as_json)
    if name is not None:
        wake_daemon()


def _limit(value: float | None) -> str:
    return "no limit" if value is None else f"{value:g}"


def _machine_table(found: list[QueueMachine], free: FreeCapacity) -> Table:
    from rich.table import Table

    table = Table("machine", "GPUs", "free GPU memory", "CPUs free", "memory free", "others free")
    for machine in found:
        host = free.host(machine.name)
        kinds = sorted({gpu.kind for gpu in machine.gpus})
        table.add_row(
            machine.name if machine.is_open else f"{machine.name} (closed)",
            f"{len(machine.gpus)} {', '.join(kinds)}" if kinds else "none",
            " ".join(f"{memory / 1024:g}" for memory in host.gpus) + (" GiB" if kinds else ""),
            f"{host.cpus} of {machine.cpus}",
            f"{host.memory_mib / 1024:g} of {machine.memory_mib / 1024:g} GiB",
            ", ".join(f"{count} {name}" for name, count in sorted(host.accelerators.items())),
        )
    return table
