"""Rows of the database as the scheduler's values, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from slipstream.cluster.queue.autoscaling.scaled_group import read_scaled_group
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


def machine_of(row: MachineRow, now: float) -> QueueMachine:
    """Return the machine of a row; one that rests is closed.

    Args:
        row: Row of the machine.
        now: Time in seconds since 1970.
    """
    return QueueMachine(
        name=row.name,
        gpus=tuple(QueueGpu(**gpu) for gpu in row.gpus),
        cpus=row.cpus,
        memory_mib=row.memory_mib,
        accelerators=row.accelerators,
        is_open=row.is_open and row.resting_until <= now,
        login=row.login,
        ssh_options=tuple(row.ssh_options),
        group=row.group,
        resting_until=row.resting_until,
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
    # Columns instead of objects, because every round of the daemon reads all jobs that wait.
    columns = [getattr(JobRow, name) for name in _JOB_COLUMNS]
    query = select(*columns).where(JobRow.state.in_(live)).order_by(JobRow.number)
    requests: dict[str, ResourceRequest] = {}
    scaled = read_scaled_group(session)
    machines = tuple(machine_of(row, now) for row in session.scalars(select(MachineRow)))
    usage = {
        row.user: decayed(row.gpu_seconds, now - row.at, policy)
        for row in session.scalars(select(UsageRow))
    }
    return QueueState(
        jobs=tuple(
            _job(row, attempts.get(row["number"]), requests)
            for row in session.execute(query).mappings()
        ),
        machines=machines,
        now=now,
        quotas=tuple(quota_of(row) for row in session.scalars(select(QuotaRow))),
        usage=usage,
        policy=policy,
        group=scaled.group if scaled else "",
        coming=scaled.coming(machines) if scaled else (),
    )


def _open_attempts() -> Any:
    return select(AttemptRow).where(AttemptRow.ended_at.is_(None))


_JOB_COLUMNS = (
    *("number", "request", "submitted_at", "user", "team", "priority", "state"),
    *("expected_seconds", "preemptible", "grace_seconds", "wanted_hosts"),
)


def _job(
    row: Mapping[Any, Any], attempt: AttemptRow | None, requests: dict[str, ResourceRequest]
) -> QueueJob:
    """Return the job of a row; jobs with the same request share one object."""
    key = repr(row["request"])
    request = requests.get(key)
    if request is None:
        request = requests[key] = ResourceRequest(**row["request"])
    fields: dict[str, Any] = {**row, "request": request}
    return QueueJob(
        **fields,
        started_at=attempt.decided_at if attempt else None,
        preempted_at=attempt.preempted_at if attempt else None,
        allocation=allocation_of(attempt.allocation) if attempt else (),
    )
