"""The commands of `slipstream cluster` about groups of machines without a job."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.cluster.machine_examples import machine_examples
from slipstream.cli.cluster.machine_options import (
    DataDisk,
    Deadline,
    Disk,
    GroupName,
    Image,
    InstanceType,
    Network,
    NumMachines,
    OpenTo,
    ProviderName,
    SharedFolder,
    Spot,
    UpRegion,
    Yes,
    Zone,
)
from slipstream.cli.options import AsJson
from slipstream.cli.output import emit, remark
from slipstream.errors import UsageError
from slipstream.units import parse_duration

if TYPE_CHECKING:
    from slipstream.cluster.groups.group_session import GroupSession
    from slipstream.cluster.groups.machine_group import MachineGroup


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("up", epilog=machine_examples("up"))(up)
    app.command("stop", epilog=machine_examples("stop"))(stop)
    app.command("start", epilog=machine_examples("start"))(start)
    app.command("extend", epilog=machine_examples("extend"))(extend)
    app.command("exec", epilog=machine_examples("exec"))(execute)
    app.command("addip", epilog=machine_examples("addip"))(addip)


def up(
    name: GroupName,
    on: ProviderName,
    instance_type: InstanceType,
    num_machines: NumMachines = 1,
    spot: Spot = False,
    deadline: Deadline = "24h",
    image: Image = "",
    yes: Yes = False,
    as_json: AsJson = False,
    region: UpRegion = "",
    zone: Zone = "",
    network: Network = "",
    disk: Disk = 100,
    data_disk: DataDisk = 0,
    shared_folder: SharedFolder = False,
    open_to: OpenTo = None,
) -> None:
    """Create a group of machines, or what is missing of it; it can be called again."""
    from slipstream.cluster.control.own_address import own_network
    from slipstream.cluster.providers.choice import cloud_provider
    from slipstream.cluster.providers.protocol import ClusterRequest

    seconds = parse_duration(deadline, "deadline")
    request = ClusterRequest(
        name=checked_name(name),
        num_machines=num_machines,
        instance_type=instance_type,
        public_key="",
        open_to=tuple(open_to or (own_network(),)),
        deadline_at=time.time() + seconds,
        image=image,
        is_spot=spot,
        system_disk_gib=disk,
        data_disk_gib=data_disk,
        zone=zone,
        network=network,
        shared_folder=shared_folder,
    )
    group = open_groups().ask(cloud_provider(on, region), request)
    bring_up(group, yes=yes, as_json=as_json)


def bring_up(group: MachineGroup, *, yes: bool, as_json: bool) -> None:
    """Ask for the cost of a new group, create it, and show it.

    Args:
        group: Group that is wanted.
        yes: Whether nobody is asked.
        as_json: Whether the machines are printed as JSON.
    """
    from slipstream.cli.cluster.cost import confirm_cost
    from slipstream.cli.cluster.group_view import remark_on_creation
    from slipstream.cli.cluster.view import TerminalView

    if not group.exists():
        estimate = group.estimate()
        group.keep_estimate(estimate)
        if not yes and not confirm_cost(estimate):
            raise UsageError("the cost was not confirmed, so nothing was created")
    begun_at = time.monotonic()
    machines = group.up(TerminalView())
    remark_on_creation(len(machines), time.monotonic() - begun_at)
    _show(group, as_json=as_json)


def stop(name: GroupName, as_json: AsJson = False) -> None:
    """Stop the machines of a group; their disks stay, and cost something."""
    group = open_groups().open(name)
    group.stop()
    _show(group, as_json=as_json)


def start(name: GroupName, as_json: AsJson = False) -> None:
    """Start the machines of a group that were stopped; the deadline stays."""
    from slipstream.cli.cluster.group_view import remark_on_creation
    from slipstream.cli.cluster.view import TerminalView

    group = open_groups().open(name)
    begun_at = time.monotonic()
    machines = group.start(TerminalView())
    remark_on_creation(len(machines), time.monotonic() - begun_at)
    _show(group, as_json=as_json)


def extend(
    name: GroupName,
    more: Annotated[
        str, typer.Argument(metavar="TIME", help="Time from now to the new deadline: 4h.")
    ],
    as_json: AsJson = False,
) -> None:
    """Set a later deadline for a group of machines."""
    group = open_groups().open(name)
    group.extend(time.time() + parse_duration(more, "new deadline"))
    _show(group, as_json=as_json)


def execute(
    name: GroupName,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="Command for the machines' shells.")
    ],
    machine: Annotated[
        str,
        typer.Option(metavar="MACHINE", show_default="all", help="Machine that runs it: task0."),
    ] = "",
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when the command has begun.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a command in the shell of each machine; the shell outlives this terminal, in tmux."""
    from slipstream.cluster.groups.group_commands import run_on

    group = open_groups().open(name)
    show = None if as_json else _show_lines
    hosts = [group.host(machine)] if machine else group.hosts()
    results = run_on(group, hosts, " ".join(command), wait=not detach, show=show)
    entries = [
        {"machine": host.name, **asdict(result)}
        for host, result in zip(hosts, results, strict=True)
    ]
    if as_json:
        emit(entries, [], as_json=True)
    raise typer.Exit(max((result.exit_code or 0 for result in results), default=0))


def addip(
    name: GroupName,
    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS", show_default="your own address", help="Address to let in."
        ),
    ] = "",
) -> None:
    """Let an address reach the machines of a group by ssh."""
    from slipstream.cluster.control.own_address import own_network

    network = address or own_network()
    open_groups().open(name).allow(network)
    remark(f"{network} may reach the machines of {name} by ssh", style="")


def open_groups() -> GroupSession:
    """Return the groups of this user."""
    from slipstream.cluster.groups.group_session import GroupSession
    from slipstream.settings import home_folder

    return GroupSession(home_folder())


def checked_name(name: str) -> str:
    """Return the name of a group.

    Raises:
        UsageError: the name has other characters than the clouds allow.
    """
    import re

    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", name):
        raise UsageError(
            f"the name is {name!r}; allowed: lower-case letters, digits and hyphens, at most 40"
        )
    return name


def _show_lines(machine: str, text: str) -> None:
    for line in text.splitlines():
        print(f"[{machine}] {line}", flush=True)


def _show(group: Any, *, as_json: bool) -> None:
    from slipstream.cli.cluster.group_view import show_group

    entry, shown = show_group(group)
    emit(entry, shown, as_json=as_json)
