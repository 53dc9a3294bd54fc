"""What people and programs see of groups of machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from slipstream.cli.output import remark
from slipstream.cluster.groups.creation_stages import GOAL_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from slipstream.cluster.groups.group_record import GroupRecord
    from slipstream.cluster.groups.machine_group import MachineGroup
    from slipstream.cluster.providers.protocol import ClusterMachine
    from slipstream.cluster.records import ResourceLedger


def remark_on_creation(count: int, seconds: float) -> None:
    """Print how many machines are ready, and after what time.

    Args:
        count: Number of machines.
        seconds: Time of their creation in seconds.
    """
    goal = f"{GOAL_SECONDS:.0f} s that it may take"
    remark(f"{count} machines are ready after {seconds:.1f} s of the {goal}", style="")


def machine_entry(machine: ClusterMachine) -> dict[str, Any]:
    """Return a machine for --json."""
    return {
        "name": machine.name,
        "id": machine.external_id,
        "state": machine.state,
        "address": machine.address,
        "inner_address": machine.inner_address,
        "login": machine.login,
        "price_per_hour": machine.price_per_hour,
        "is_spot": machine.is_spot,
    }


def group_entry(record: GroupRecord, machines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a group for --json."""
    request = record.request
    return {
        "kind": "group",
        "name": record.name,
        "provider": record.provider,
        "region": record.region,
        "instance_type": request.instance_type,
        "is_spot": request.is_spot,
        "created_at": record.created_at,
        "deadline_at": request.deadline_at,
        "machines": list(machines),
    }


def show_group(group: MachineGroup) -> tuple[dict[str, Any], list[RenderableType]]:
    """Return a group with the present states of its machines, for --json and for people."""
    from rich.table import Table

    machines = group.machines()
    table = Table("machine", "state", "address", "inner address", "login", "id")
    for machine in machines:
        table.add_row(
            machine.name,
            machine.state,
            machine.address,
            machine.inner_address,
            machine.login,
            machine.external_id,
        )
    record = group.record
    deadline = f"{datetime.fromtimestamp(record.request.deadline_at):%Y-%m-%d %H:%M}"
    line = f"{record.name} on {record.provider} {record.region}, until {deadline}"
    return group_entry(record, [machine_entry(machine) for machine in machines]), [line, table]


def listed_groups(home: Path, ledger: ResourceLedger) -> tuple[list[Any], list[RenderableType]]:
    """Return all groups with their machines as the ledger knows them, for --json and for people.

    Args:
        home: Folder of the records.
        ledger: Ledger of all resources.
    """
    from rich.table import Table

    from slipstream.cluster.groups.group_record import all_groups

    entries: list[Any] = []
    table = Table("group", "on", "machines", "type", "until")
    for record in all_groups(home):
        machines = [
            {"name": entry.name, "id": entry.external_id, "price_per_hour": entry.price_per_hour}
            for entry in ledger.resources(record.name)
            if entry.kind == "machine"
        ]
        entries.append(group_entry(record, machines))
        until = f"{datetime.fromtimestamp(record.request.deadline_at):%Y-%m-%d %H:%M}"
        place = f"{record.provider} {record.region}"
        count = ", ".join(str(machine["name"]) for machine in machines) or "none"
        table.add_row(record.name, place, count, record.request.instance_type, until)
    return entries, [table] if entries else []
