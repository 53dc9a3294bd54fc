"""Machines that come when jobs need them and go when they are idle, beside the daemon.

Each look compares what should be there with what the provider lists, and changes one thing. Nothing
matters that is only in memory, so a daemon that is killed anywhere is continued by the next one:
creations are idempotent by the ledger, a machine is in the queue only if the provider has it, and
it leaves the queue in a transaction that is refused while a job holds anything of it. The machines
end themselves at the deadline of the group, which is moved on as long as a daemon lives.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sqlalchemy import select

from slipstream.cluster.control.api import LogView
from slipstream.cluster.groups.group_record import GroupFolder
from slipstream.cluster.groups.group_session import GroupSession
from slipstream.cluster.groups.machine_group import BOOT_SECONDS, MachineGroup
from slipstream.cluster.providers.protocol import ClusterMachine
from slipstream.cluster.queue.autoscaling.resizing import write_sizes
from slipstream.cluster.queue.autoscaling.scaled_group import (
    ScaledGroup,
    change_scaled_group,
    read_scaled_group,
)
from slipstream.cluster.queue.folders import fifo_path
from slipstream.cluster.queue.pool import MachinePool
from slipstream.cluster.queue.shapes import QueueMachine, QueuePolicy, counted
from slipstream.cluster.queue.shim import poke
from slipstream.cluster.queue.ssh_machine import ssh_machine
from slipstream.cluster.queue.store import AttemptRow, QueueStore
from slipstream.errors import ConfigError, PeerError, SlipstreamError, UsageError

_log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
USABLE_STATES = ("starting", "running")
# Time after which the provider is asked for its machines, even if nothing is to be changed: some
# may have ended, and the lease is renewed.
LIST_SECONDS = 30.0
# Pause after a refused change, such as one by a quota of the provider. Chosen by hand.
PROBLEM_SECONDS = 60.0


class AutoScaler:
    """The scaler of the queue in one folder.

    Args:
        home: Folder of the records.
        policy: Rules of the order of jobs.
    """

    def __init__(self, home: Path, policy: QueuePolicy | None = None) -> None:
        self._home = home
        self._store = QueueStore(home)
        self._pool = MachinePool(self._store)
        self._policy = policy or QueuePolicy()
        self._idle_since: dict[str, float] = {}
        self._unusable_since: dict[str, float] = {}
        self._listed_at = float("-inf")

    def look(self) -> None:
        """Decide once, and change what is needed; do nothing if no group is scaled.

        Raises:
            SlipstreamError: the provider, or a new machine, refuses something.
        """
        with self._store.transaction() as session:
            scaled = read_scaled_group(session)
        if scaled is None:
            return
        decision = write_sizes(self._store, self._policy)
        if decision is None:
            return
        if decision.resizes:
            self._wake_daemon()
        members = self._members(scaled)
        due = self._idle_too_long(scaled, members)
        surplus = len(members) - decision.machines
        is_list_due = time.monotonic() - self._listed_at >= LIST_SECONDS
        if is_list_due or surplus < 0 or (surplus > 0 and due):
            self._change(scaled, decision.machines, due)
        if scaled.problem:
            change_scaled_group(self._store, scaled.group, problem="")

    def _change(self, scaled: ScaledGroup, wanted: int, due: Sequence[str]) -> None:
        """Bring the group closer to a number of machines.

        Args:
            scaled: Group, with its limits.
            wanted: Number of machines that should be there.
            due: Names of the machines that have been idle for long enough, in their order.
        """
        group = GroupSession(self._home).open(scaled.group)
        machines = [machine for machine in group.machines() if machine.state in USABLE_STATES]
        self._listed_at = time.monotonic()
        self._renew(group, scaled, machines)
        self._agree(group, scaled, machines)
        if len(machines) < wanted:
            self._grow(scaled, machines, wanted)
        for name in due[: max(len(machines) - wanted, 0)]:
            if self._remove(name):
                group.end_machine(name)
                _log.info("machine %s was idle and is given back", name)

    def _idle_too_long(self, scaled: ScaledGroup, members: Sequence[QueueMachine]) -> list[str]:
        """Return the machines that have been idle for long enough, the one made last first."""
        now, busy = time.monotonic(), self._busy()
        idle = [member.name for member in members if member.name not in busy]
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle}
        due = [name for name in idle if now - self._idle_since[name] >= scaled.idle_seconds]
        return sorted(due, key=_index, reverse=True)

    def tell_problem(self, problem: str) -> None:
        """Write down why a look failed, for those who ask."""
        with self._store.transaction() as session:
            scaled = read_scaled_group(session)
        if scaled is not None and scaled.problem != problem:
            change_scaled_group(self._store, scaled.group, problem=problem)

    # ---- the machines that are there ----

    def _renew(
        self, group: MachineGroup, scaled: ScaledGroup, machines: Sequence[ClusterMachine]
    ) -> None:
        """Set a later deadline when less than half of the lease is left."""
        now = time.time()
        if group.record.request.deadline_at - now >= scaled.lease_seconds / 2.0:
            return
        if machines:
            try:
                group.extend(now + scaled.lease_seconds)
            except SlipstreamError as error:  # a lost machine holds nobody else up
                _log.warning("the deadline of %s is not moved on: %s", scaled.group, error)
        else:
            self._write_request(scaled.group, deadline_at=now + scaled.lease_seconds)

    def _agree(
        self, group: MachineGroup, scaled: ScaledGroup, machines: Sequence[ClusterMachine]
    ) -> None:
        """Make the machines of the queue those that the provider lists as running."""
        running = {one.name: one.address for one in machines if one.state == "running"}
        known = {member.name: member.ssh_options for member in self._members(scaled)}
        for name in known.keys() - running.keys():
            if not self._remove(name):
                self._pool.open_machine(name, is_open=False)
        for name, address in sorted(running.items()):
            # A machine that was stopped and started has another address.
            if _host_name(address) not in known.get(name, ()):
                self._take_in(group, scaled, name)

    def _take_in(self, group: MachineGroup, scaled: ScaledGroup, name: str) -> None:
        """Add a machine to the queue; end one that lets nobody in for too long."""
        host = group.host(name)
        try:
            found = ssh_machine(host.login, host.options, name)
        except (PeerError, ConfigError) as error:
            _log.info("machine %s cannot be used yet: %s", name, error)
            now = time.monotonic()
            self._listed_at = float("-inf")
            if now - self._unusable_since.setdefault(name, now) >= BOOT_SECONDS:
                group.end_machine(name)
            return
        self._unusable_since.pop(name, None)
        user, _, address = host.login.rpartition("@")
        machine = replace(
            found,
            login=f"{user}@{name}",
            ssh_options=(_host_name(address), *host.options),
            group=scaled.group,
        )
        # In this order: a machine that is in the queue is not looked at again after a kill.
        change_scaled_group(self._store, scaled.group, like=machine)
        self._pool.set_machine(machine)
        _log.info("machine %s is there", name)
        self._wake_daemon()

    def _members(self, scaled: ScaledGroup) -> list[QueueMachine]:
        return [machine for machine in self._pool.machines() if machine.group == scaled.group]

    def _remove(self, name: str) -> bool:
        """Take a machine out of the queue; return False if a job holds anything of it."""
        try:
            self._pool.remove_machine(name)
        except UsageError:
            return False
        return True

    # ---- more and fewer ----

    def _grow(self, scaled: ScaledGroup, machines: Sequence[ClusterMachine], wanted: int) -> None:
        _log.info(
            "%s of %s, and %d needed", counted(len(machines), "machine"), scaled.group, wanted
        )
        numbers = {_index(machine.name) for machine in machines}
        self._write_request(scaled.group, num_machines=names_up_to(numbers, wanted))
        group = GroupSession(self._home).open(scaled.group)
        group.up(LogView())
        self._agree(group, scaled, group.machines())

    def _wake_daemon(self) -> None:
        poke(str(fifo_path(self._home)))

    def _busy(self) -> set[str]:
        with self._store.transaction() as session:
            query = select(AttemptRow).where(AttemptRow.ended_at.is_(None))
            rows = session.scalars(query)
            return {share["machine"] for row in rows for share in row.allocation}

    def _write_request(self, name: str, **changes: float) -> None:
        """Change the request in the record of a group."""
        folder = GroupFolder(self._home, name)
        record = folder.read()
        assert record is not None
        folder.write(replace(record, request=replace(record.request, **changes)))


def names_up_to(numbers: set[int], wanted: int) -> int:
    """Return the number of names, from 0 on, after whose creation so many machines are there.

    Args:
        numbers: Numbers in the names of the machines that are there.
        wanted: Number of machines, at least as many as are there.
    """
    count = 0
    while len(numbers | set(range(count))) < wanted:
        count += 1
    return max(count, 1)


def _host_name(address: str) -> str:
    """Return the option for ssh that says where a machine is."""
    return f"HostName={address}"


def _index(name: str) -> int:
    """Return the number in the name of a machine, such as 3 for task3.pool."""
    return int(name.partition(".")[0].removeprefix("task"))


@contextmanager
def scaling(home: Path) -> Generator[None]:
    """Scale the machines of a queue in a thread during a `with` block.

    The thread may be in the middle of a creation at the end of the block. It is left alone, because
    a creation can be interrupted at any line.
    """
    over = threading.Event()

    def scale_until_over() -> None:
        scaler, pause = AutoScaler(home), 0.0
        while not over.wait(pause):
            pause = LOOK_SECONDS
            try:
                scaler.look()
            except SlipstreamError as error:
                _log.warning("the machines are not scaled: %s", error)
                scaler.tell_problem(str(error))
                pause = PROBLEM_SECONDS
            except Exception:  # noqa: BLE001 - the top of the thread, which must go on
                _log.exception("the machines are not scaled")
                pause = PROBLEM_SECONDS

    threading.Thread(target=scale_until_over, name="scaling", daemon=True).start()
    try:
        yield
    finally:
        over.set()
