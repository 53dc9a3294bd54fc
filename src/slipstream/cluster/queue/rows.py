"""Rows of the database as the scheduler's values, and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from slipstream.cluster.queue.fairness import decayed
from slipstream.cluster.queue.shapes import (
    ACTIVE_STATES,
    Allocation,
    HostShare,
    QueueGpu,
    QueueJob,
    QueueMachine,
    QueuePolicy,
    QueueState,
    Quota,
    ResourceRequest,
)
from slipstream.cluster.queue.store import AttemptRow, JobRow, MachineRow, QuotaRow, UsageRow


def allocation_of(fields: Iterable[dict[str, Any]]) -> Allocation:
    """Return the allocation of an attempt's row."""
    shares = [HostShare(**share) for share in fields]
    return tuple(
        replace(share, gpus=tuple((gpu, memory) for gpu, memory in share.gpus)) for share in shares
    )


def allocation_fields(allocation: Allocation) -> list[dict[str, Any]]:
    """Return the value for an attempt's row."""
    return [asdict(share) for share in allocation]


def machine_of(row: MachineRow) -> QueueMachine:
    """Return the machine of a row."""
    return QueueMachine(
        name=row.name,
        gpus=tuple(QueueGpu(**gpu) for gpu in row.gpus),
        cpus=row.cpus,
        memory_mib=row.memory_mib,
        accelerators=row.accelerators,
        is_open=row.is_open,
    )


def quota_of(row: QuotaRow) -> Quota:
    """Return the quota of a row."""
    return Quota(
        kind=row.kind,
        name=row.name,
        max_gpus=row.max_gpus,
        max_jobs=row.max_jobs,
        weight=row.weight,
    )


def read_state(session: Session, now: float, policy: QueuePolicy) -> QueueState:
    """Return everything on which the scheduler's decisions depend.

    Args:
        session: Session of a transaction.
        now: Time in seconds since 1970.
        policy: Rules of the order of jobs.
    """
    live = ("waiting", *ACTIVE_STATES)
    attempts = {row.job: row for row in session.scalars(_open_attempts())}
    jobs = session.scalars(select(JobRow).where(JobRow.state.in_(live)).order_by(JobRow.number))
    usage = {
        row.user: decayed(row.gpu_seconds, now - row.at, policy)
        for row in session.scalars(select(UsageRow))
    }
    return QueueState(
        jobs=tuple(_job(row, attempts.get(row.number)) for row in jobs),
        machines=tuple(machine_of(row) for row in session.scalars(select(MachineRow))),
        now=now,
        quotas=tuple(quota_of(row) for row in session.scalars(select(QuotaRow))),
        usage=usage,
        policy=policy,
    )


def _open_attempts() -> Any:
    return select(AttemptRow).where(AttemptRow.ended_at.is_(None))


def _job(row: JobRow, attempt: AttemptRow | None) -> QueueJob:
    return QueueJob(
        number=row.number,
        request=ResourceRequest(**row.request),
        submitted_at=row.submitted_at,
        user=row.user,
        team=row.team,
        priority=row.priority,
        state=row.state,
        expected_seconds=row.expected_seconds,
        preemptible=row.preemptible,
        grace_seconds=row.grace_seconds,
        started_at=attempt.decided_at if attempt else None,
        preempted_at=attempt.preempted_at if attempt else None,
        allocation=allocation_of(attempt.allocation) if attempt else (),
    )
