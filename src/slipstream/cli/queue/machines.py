"""The commands of `slipstream queue` for machines and quotas."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.options import AsJson
from slipstream.cli.output import emit, remark
from slipstream.cli.queue.opening import opened_queue, wake_daemon
from slipstream.cli.queue.submit import parse_accelerators
from slipstream.errors import UsageError
from slipstream.units import MIB, parse_bytes

if TYPE_CHECKING:
    from rich.table import Table

    from slipstream.cluster.queue import QueueMachine, QueueStore
    from slipstream.cluster.queue.capacity import FreeCapacity

ACTIONS = ("add", "close", "open", "remove")
NO_MACHINES = "the queue has no machines; add some: slipstream queue machines add HOST..."
FOUND = "In place of what is found on the host"

MACHINES_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue machines
  slipstream queue machines add node1 me@node2
  slipstream queue machines add node1 --ssh Port=2222 --cpus 32
  slipstream queue machines add here --local --gpus 2 --gpu H100 --gpu-memory 80GiB --cpus 8
  slipstream queue machines close node1     finishes its jobs and gets no others
  slipstream queue machines open node1
  slipstream queue machines remove node1
"""
QUOTA_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue quota
  slipstream queue quota ann --max-gpus 4
  slipstream queue quota vision --team --max-gpus 16 --max-jobs 10
  slipstream queue quota ben --weight 2     twice the share of others
"""


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("machines", epilog=MACHINES_EXAMPLES)(machines)
    app.command("quota", epilog=QUOTA_EXAMPLES)(quota)


# over budget: a parameter for each option of the command
def machines(
    action: Annotated[
        str | None, typer.Argument(metavar="[add|close|open|remove]", help="Change to make.")
    ] = None,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[HOST...]", help="Hosts as for ssh.")
    ] = None,
    ssh: Annotated[
        list[str] | None,
        typer.Option(metavar="OPTION", help="Option for ssh: Port=2222; may be repeated."),
    ] = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="The machine is the host of the daemon; state what it has."),
    ] = False,
    gpus: Annotated[
        int | None, typer.Option(min=0, rich_help_panel=FOUND, help="Number of GPUs.")
    ] = None,
    gpu: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=FOUND, help="Name of its GPUs.")
    ] = "GPU",
    gpu_memory: Annotated[
        str,
        typer.Option(metavar="SIZE", rich_help_panel=FOUND, help="Memory of each GPU: 80GiB."),
    ] = "0",
    cpus: Annotated[
        int | None, typer.Option(min=1, rich_help_panel=FOUND, help="Number of processors.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", rich_help_panel=FOUND, help="Memory: 512GiB."),
    ] = None,
    accelerator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            rich_help_panel=FOUND,
            help="Other devices, such as fpga=2; may be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the machines and what is free on them, or change them."""

    if action not in (None, *ACTIONS) or (action is not None and not names):
        raise UsageError(
            f"`machines {action}` was called with {len(names or [])} hosts; allowed: "
            f"{', '.join(ACTIONS)}, and at least one host"
        )
    num_failed = 0
    stated = _stated(gpus, gpu, gpu_memory, cpus, memory, accelerator or [])
    with opened_queue() as store:
        if action == "add":
            num_failed = _add(store, names or [], None if local else ssh or [], stated)
        elif action is not None:
            _change(store, action, names or [])
        _show(store, as_json)
    if action in ("add", "open"):
        wake_daemon()
    if num_failed:
        raise typer.Exit(1)


def _stated(
    gpus: int | None,
    gpu: str,
    gpu_memory: str,
    cpus: int | None,
    memory: str | None,
    accelerator: list[str],
) -> dict[str, Any]:
    """Return the fields of a machine that were stated on the command line."""
    from slipstream.cluster.queue import QueueGpu

    stated: dict[str, Any] = {"accelerators": parse_accelerators(accelerator)}
    if gpus is not None:
        size = parse_bytes(gpu_memory, "--gpu-memory") // MIB
        stated["gpus"] = (QueueGpu(kind=gpu, memory_mib=size),) * gpus
    if cpus is not None:
        stated["cpus"] = cpus
    if memory is not None:
        stated["memory_mib"] = parse_bytes(memory, "--memory") // MIB
    return stated


def _change(store: QueueStore, action: str, names: list[str]) -> None:
    """Close, open or remove machines."""
    from slipstream.cluster.queue import MachinePool

    pool = MachinePool(store)
    for name in names:
        if action == "remove":
            pool.remove_machine(name)
        else:
            pool.open_machine(name, action == "open")


def _add(store: QueueStore, names: list[str], ssh: list[str] | None, stated: dict[str, Any]) -> int:
    """Add machines with what they have; return the number of those that cannot be added.

    Args:
        store: Database of the queue.
        names: Hosts as for ssh.
        ssh: Options for ssh, or None for the host of the daemon, of which all is stated.
        stated: Fields of the machines, in place of what is found.
    """
    from slipstream.cluster.queue import MachinePool, QueueMachine
    from slipstream.cluster.queue.ssh_machine import ssh_machines

    pool, num_failed = MachinePool(store), 0
    local = [QueueMachine(name=name) for name in names]
    for machine in local if ssh is None else ssh_machines(names, ssh):
        if isinstance(machine, QueueMachine):
            pool.set_machine(replace(machine, **stated))
        else:
            remark(str(machine), style="yellow")
            num_failed += 1
    return num_failed


def _show(store: QueueStore, as_json: bool) -> None:
    from slipstream.cluster.queue import JobQueue, MachinePool
    from slipstream.cluster.queue.capacity import FreeCapacity
    from slipstream.cluster.queue.shapes import ACTIVE_STATES

    found, jobs = MachinePool(store).machines(), JobQueue(store).jobs()
    active = [job.allocation for job in jobs if job.state in ACTIVE_STATES]
    shown = [_machine_table(found, FreeCapacity.of(found, active))] if found else [NO_MACHINES]
    emit([asdict(machine) for machine in found], shown, as_json=as_json)


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


def _name(machine: QueueMachine) -> str:
    if machine.is_open:
        return machine.name
    if machine.resting_until > time.time():
        clock = time.strftime("%H:%M", time.localtime(machine.resting_until))
        return f"{machine.name} (out of reach, tried again at {clock})"
    return f"{machine.name} (closed)"


def _machine_table(found: list[QueueMachine], free: FreeCapacity) -> Table:
    from rich.table import Table

    table = Table("machine", "GPUs", "free GPU memory", "CPUs free", "memory free", "others free")
    for machine in found:
        host = free.host(machine.name)
        kinds = sorted({gpu.kind for gpu in machine.gpus})
        table.add_row(
            _name(machine),
            f"{len(machine.gpus)} {', '.join(kinds)}" if kinds else "none",
            " ".join(f"{memory / 1024:g}" for memory in host.gpus) + (" GiB" if kinds else ""),
            f"{host.cpus} of {machine.cpus}",
            f"{host.memory_mib / 1024:g} of {machine.memory_mib / 1024:g} GiB",
            ", ".join(f"{count} {name}" for name, count in sorted(host.accelerators.items())),
        )
    return table
