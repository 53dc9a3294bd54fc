"""The machines of the queue, and the quotas of users and teams."""

from __future__ import annotations

import time
from dataclasses import asdict

from sqlalchemy import select
from sqlalchemy.orm import Session

from slipstream.cluster.queue.rows import machine_of, quota_of
from slipstream.cluster.queue.shapes import QueueMachine, Quota
from slipstream.cluster.queue.store import AttemptRow, MachineRow, QueueStore, QuotaRow
from slipstream.errors import UsageError


class MachinePool:
    """The machines and quotas in one database.

    Args:
        store: Database of the queue.
    """

    def __init__(self, store: QueueStore) -> None:
        self._store = store

    def machines(self) -> list[QueueMachine]:
        """Return all machines in the order of their names."""
        with self._store.transaction() as session:
            rows = session.scalars(select(MachineRow).order_by(MachineRow.name))
            return [machine_of(row, time.time()) for row in rows]

    def set_machine(self, machine: QueueMachine) -> None:
        """Add a machine, or change it; a running job keeps what it holds.

        Raises:
            UsageError: a GPU has no memory, or jobs hold GPUs or memory that would be gone.
        """
        if any(gpu.memory_mib < 1 for gpu in machine.gpus):
            raise UsageError(
                f"the GPUs of machine {machine.name} have no memory; state at least 1 MiB"
            )
        fields = asdict(machine) | {"gpus": [asdict(gpu) for gpu in machine.gpus]}
        with self._store.transaction("machine") as session:
            before = session.get(MachineRow, machine.name)
            if before is not None and machine_of(before, 0.0).gpus != machine.gpus:
                _check_unused(session, machine.name)
            session.merge(MachineRow(**fields))

    def open_machine(self, name: str, is_open: bool) -> None:
        """Open a machine for jobs, or close it; a closed one finishes its jobs.

        Raises:
            UsageError: there is no such machine.
        """
        with self._store.transaction("machine") as session:
            row = _find_machine(session, name)
            row.is_open, row.resting_until = is_open, 0.0

    def remove_machine(self, name: str) -> None:
        """Remove a machine on which nothing runs.

        Raises:
            UsageError: there is no such machine, or jobs hold resources of it.
        """
        with self._store.transaction("machine") as session:
            row = _find_machine(session, name)
            _check_unused(session, name)
            session.delete(row)

    def quotas(self) -> list[Quota]:
        """Return all quotas."""
        with self._store.transaction() as session:
            return [quota_of(row) for row in session.scalars(select(QuotaRow))]

    def set_quota(self, quota: Quota) -> None:
        """Set the limits and the weight of a user or team.

        Raises:
            UsageError: the kind is neither user nor team, or the weight is not above 0.
        """
        if quota.kind not in ("user", "team") or not quota.weight > 0:
            raise UsageError(
                f"the quota of {quota.kind} {quota.name} has the weight {quota.weight}; allowed:"
                " a user or a team, and a weight above 0"
            )
        with self._store.transaction("quota") as session:
            session.merge(QuotaRow(**asdict(quota)))


def _find_machine(session: Session, name: str) -> MachineRow:
    row = session.get(MachineRow, name)
    if row is None:
        names = ", ".join(session.scalars(select(MachineRow.name))) or "none"
        raise UsageError(f"there is no machine {name!r}; known: {names}")
    return row


def _check_unused(session: Session, name: str) -> None:
    query = select(AttemptRow).where(AttemptRow.ended_at.is_(None))
    users = [
        row.job
        for row in session.scalars(query)
        if any(share["machine"] == name for share in row.allocation)
    ]
    if users:
        raise UsageError(
            f"machine {name} is in use by job {', '.join(map(str, users))}; close it, and wait or"
            " cancel them"
        )
