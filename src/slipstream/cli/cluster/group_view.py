"""What people see of groups of machines: their creation as it goes on, and lists."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from slipstream.cli.output import remark, stderr_console
from slipstream.cluster.control.creation_stages import GOAL_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType
    from rich.text import Text

    from slipstream.cluster.control.group_record import GroupRecord
    from slipstream.cluster.control.machine_group import MachineGroup
    from slipstream.cluster.providers.protocol import ClusterMachine
    from slipstream.cluster.records import ResourceLedger


class CreationView:
    """A view of stages on stderr; a terminal also has the running one with its expected time.

    Args:
        expected: Seconds that each stage took earlier, by its name.
    """

    def __init__(self, expected: Mapping[str, float]) -> None:
        self._expected = expected
        self._begun_at = self._stage_at = time.monotonic()
        self._stage = ""

    def stage(self, name: str, host: str, seconds: float | None) -> None:
        """Show that a stage has begun, or how long it took."""
        del host
        if seconds is None:
            self._stage, self._stage_at = name, time.monotonic()
        else:
            remark(f"{name}: {seconds:.1f} s{self._about(name)}")

    def note(self, text: str) -> None:
        """Show a remark."""
        remark(f"{time.monotonic() - self._begun_at:6.1f} s  {text}")

    def __rich__(self) -> Text:
        """Return the line of the running stage."""
        from rich.text import Text

        now = time.monotonic()
        stage = f"{self._stage}: {now - self._stage_at:.0f} s{self._about(self._stage)}"
        total = f"{now - self._begun_at:.0f} s of the {GOAL_SECONDS:.0f} s that it may take"
        return Text(f"{stage}; in all {total}")

    def finish(self, count: int) -> None:
        """Show how many machines are ready, and after what time."""
        seconds = time.monotonic() - self._begun_at
        remark(f"{count} machines are ready after {seconds:.1f} s", style="")

    def _about(self, stage: str) -> str:
        return f" (about {self._expected[stage]:.0f} s)" if stage in self._expected else ""


@contextmanager
def creation_view(group: MachineGroup, ledger: ResourceLedger) -> Generator[CreationView]:
    """Yield a view that is alive while machines are made."""
    from rich.live import Live

    from slipstream.cluster.control.creation_stages import expected_seconds

    view = CreationView(expected_seconds(ledger, group.record.provider, group.record.region))
    if not sys.stderr.isatty():
        yield view
        return
    with Live(view, console=stderr_console(), transient=True, refresh_per_second=4):
        yield view


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

    from slipstream.cluster.control.group_record import all_groups

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
