"""The changes that the daemon makes: starts of jobs and their ends, each in one transaction.

A start survives a kill at any line. (1) One transaction writes the attempt with its allocation and
a fresh token, and the job is `starting`. (2) The runner starts the token; it does so once, however
often it is asked. (3) A transaction notes that it runs. A daemon that finds an attempt without (3)
repeats (2). An attempt ends in one transaction, too, together with what its user has used.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from slipstream.cluster.queue.fairness import decayed
from slipstream.cluster.queue.folders import RUN_PREFIX
from slipstream.cluster.queue.rows import allocation_fields, allocation_of, read_state
from slipstream.cluster.queue.scheduler import QueuePlan, plan
from slipstream.cluster.queue.shapes import Allocation, HostShare, QueuePolicy, gpu_units
from slipstream.cluster.queue.store import (
    AttemptRow,
    JobRow,
    MachineRow,
    QueueEventRow,
    QueueStore,
    UsageRow,
)

# Time for which no job starts on a machine that could not be reached. Chosen by hand.
REST_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StartStatus:
    """What became of a token.

    Args:
        state: "unknown" if it was never started, or must be started again because the process that
            follows it was lost; "running", or "ended".
        exit_code: Exit code, negative for a signal; None while it runs, and if it ended without.
        reason: Reason of its end in words, or "".
        is_unreached: Whether it never began, because machines could not be reached.
    """

    state: Literal["unknown", "running", "ended"]
    exit_code: int | None = None
    reason: str = ""
    is_unreached: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One start of a job that has not ended, with what a runner needs for it.

    Args:
        token: Unique name of the start.
        job: Number of the job.
        state: State of the job.
        command: Program and its arguments.
        cwd: Working directory.
        environ: Variables that are added to those of the runner.
        allocation: Resources of the job.
        shares_gpus: Whether the job may use only its share of the memory of each GPU.
        grace_seconds: Time in seconds for a checkpoint before the job is killed.
    """

    token: str
    job: int
    state: str
    command: tuple[str, ...]
    cwd: str
    environ: dict[str, str]
    allocation: Allocation
    shares_gpus: bool
    grace_seconds: float


class Attempts:
    """The starts of jobs in a store.

    Args:
        store: Database of the queue.
        policy: Rules of the order of jobs.
    """

    def __init__(self, store: QueueStore, policy: QueuePolicy) -> None:
        self._store = store
        self._policy = policy

    def open(self) -> list[Attempt]:
        """Return the attempts that have not ended, the oldest first."""
        query = (
            select(AttemptRow, JobRow)
            .join(JobRow, JobRow.number == AttemptRow.job)
            .where(AttemptRow.ended_at.is_(None))
            .order_by(AttemptRow.decided_at, AttemptRow.job)
        )
        with self._store.transaction() as session:
            return [_attempt(attempt, job) for attempt, job in session.execute(query)]

    def decide(self, now: float) -> QueuePlan:
        """Run one round of the scheduler and write its decisions down.

        Args:
            now: Time in seconds since 1970.
        """
        with self._store.transaction("decide") as session:
            state = read_state(session, now, self._policy)
            decisions = plan(state, explain=False)
            for number, allocation in decisions.starts.items():
                _begin_attempt(session, number, allocation, now)
            for number, other in decisions.preempts.items():
                _set_state(session, number, "preempting")
                _newest_attempt(session, number).preempted_at = now
                note(session, number, now, "preempt", f"makes room for job {other}")
        return decisions

    def started(self, token: str, now: float) -> None:
        """Note that the runner has started an attempt; further calls change nothing."""
        with self._store.transaction("started") as session:
            attempt = session.get_one(AttemptRow, token)
            job = session.get_one(JobRow, attempt.job)
            if attempt.started_at is not None or attempt.ended_at is not None:
                return
            attempt.started_at = now
            if job.state == "starting":
                job.state = "running"
            hosts = ", ".join(_host_in_words(share) for share in allocation_of(attempt.allocation))
            note(session, job.number, now, "start", f"runs on {hosts}")

    def ended(self, token: str, status: StartStatus, now: float) -> None:
        """Write the end of an attempt; further calls change nothing.

        Args:
            token: Name of the attempt.
            status: Status of its end.
            now: Time in seconds since 1970.
        """
        with self._store.transaction("ended") as session:
            attempt = session.get_one(AttemptRow, token)
            if attempt.ended_at is not None:
                return
            job = session.get_one(JobRow, attempt.job)
            attempt.ended_at = now
            attempt.exit_code = status.exit_code
            self._add_usage(session, job.user, attempt, now)
            if status.is_unreached:
                _let_rest(session, attempt, status.reason, now)
            state, message = _next_state(job, status)
            job.state, job.message = state, message
            if state == "waiting":
                note(session, job.number, now, "requeue", message)
                return
            job.ended_at, job.exit_code = now, status.exit_code
            note(session, job.number, now, "end", f"{state}: {message}" if message else state)

    def outcome(self, number: int) -> str:
        """Return what became of a job in words, such as "failed: exit code 1"."""
        with self._store.transaction() as session:
            job = session.get_one(JobRow, number)
            return f"{job.state}: {job.message}" if job.message else job.state

    def _add_usage(self, session: Session, user: str, attempt: AttemptRow, now: float) -> None:
        used = attempt.gpu_units * max(0.0, now - attempt.decided_at)
        row = session.get(UsageRow, user)
        if row is None:
            session.add(UsageRow(user=user, gpu_seconds=used, at=now))
            return
        row.gpu_seconds = decayed(row.gpu_seconds, now - row.at, self._policy) + used
        row.at = now


def note(session: Session, job: int, now: float, kind: str, text: str) -> None:
    """Write an event of a job; the text contains no secret."""
    session.add(QueueEventRow(job=job, time=now, kind=kind, text=text))


def _begin_attempt(session: Session, number: int, allocation: Allocation, now: float) -> None:
    job = session.get_one(JobRow, number)
    job.state, job.message = "starting", ""
    job.num_attempts += 1
    prefix = RUN_PREFIX if job.spec is not None else ""
    session.add(
        AttemptRow(
            token=f"{prefix}{number}-{job.num_attempts}-{secrets.token_hex(4)}",
            job=number,
            allocation=allocation_fields(allocation),
            gpu_units=gpu_units(allocation),
            decided_at=now,
        )
    )


def _let_rest(session: Session, attempt: AttemptRow, reason: str, now: float) -> None:
    """Start nothing for a while on the machine that a reason begins with, or on all of a job."""
    names = [share.machine for share in allocation_of(attempt.allocation)]
    named = [name for name in names if reason.startswith((f"{name} ", f"{name}:"))]
    for name in named or names:
        machine = session.get(MachineRow, name)
        if machine is not None:
            machine.resting_until = now + REST_SECONDS


def _next_state(job: JobRow, status: StartStatus) -> tuple[str, str]:
    """Return the state of a job after the end of its attempt, and the reason in words."""
    exit_code, reason = status.exit_code, status.reason
    if job.state == "cancelling":
        return "cancelled", "on request"
    if exit_code == 0:
        return "succeeded", ""
    if job.state == "preempting":
        return "waiting", "has made room; goes on from its checkpoint when it is started again"
    if status.is_unreached:
        return "waiting", f"could not start ({reason}); starts on other machines, or later"
    if exit_code is None and job.preemptible:
        return "waiting", f"{reason or 'its processes vanished'}; goes on from its checkpoint"
    if exit_code is None:
        return "failed", reason or "its processes vanished without an exit code"
    end = f"ended by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    return "failed", f"{end}: {reason}" if reason else end


def _set_state(session: Session, number: int, state: str) -> None:
    session.get_one(JobRow, number).state = state


def _newest_attempt(session: Session, number: int) -> AttemptRow:
    query = select(AttemptRow).where(AttemptRow.job == number, AttemptRow.ended_at.is_(None))
    return session.scalars(query).one()


def _attempt(row: AttemptRow, job: JobRow) -> Attempt:
    return Attempt(
        token=row.token,
        job=job.number,
        state=job.state,
        command=tuple(job.command),
        cwd=job.cwd,
        environ=job.environ,
        allocation=allocation_of(row.allocation),
        shares_gpus=bool(job.request["gpu_memory_mib"]),
        grace_seconds=job.grace_seconds,
    )


def _host_in_words(share: HostShare) -> str:
    numbers = ", ".join(str(number) for number, _ in share.gpus)
    return f"{share.machine}, GPU {numbers}" if numbers else share.machine
