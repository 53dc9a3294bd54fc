"""The jobs of the queue as their users see them: submit, look at, change and cancel."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from slipstream.cluster.queue.attempts import note
from slipstream.cluster.queue.rows import allocation_of, read_state
from slipstream.cluster.queue.scheduler import never, plan
from slipstream.cluster.queue.shapes import (
    ACTIVE_STATES,
    END_STATES,
    Allocation,
    QueuePolicy,
    ResourceRequest,
)
from slipstream.cluster.queue.store import (
    AttemptRow,
    JobRow,
    QueueEventRow,
    QueueStore,
)
from slipstream.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSubmission:
    """A job that a user gives to the queue.

    Args:
        command: Program and its arguments.
        cwd: Working directory.
        request: Resources that it needs (default: one processor).
        name: Name for people (default "": the name of the program).
        user: Name of the user (default "").
        team: Name of the user's team (default "").
        priority: Priority (default 0); a larger number is more urgent.
        environ: Variables that are added to those of the daemon (default none).
        expected_seconds: Expected length in seconds (default None: nobody knows).
        preemptible: Whether it can go on from a checkpoint when it is started again (default
            False).
        grace_seconds: Time in seconds between SIGTERM and SIGKILL (default 30).
        held: Whether it waits until it is released (default False).
        spec: Description of a job that runs over machines, as JSON (default None: the command is a
            process on the daemon's host); its paths are relative to `cwd`.
    """

    command: tuple[str, ...]
    cwd: str
    request: ResourceRequest = field(default_factory=ResourceRequest)
    name: str = ""
    user: str = ""
    team: str = ""
    priority: int = 0
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    expected_seconds: float | None = None
    preemptible: bool = False
    grace_seconds: float = 30.0
    held: bool = False
    spec: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """A job as the database knows it; times are seconds since 1970.

    Args:
        number: Number of the job.
        name: Name for people.
        user: Name of the user.
        team: Name of the user's team.
        state: State, one of `JOB_STATES`.
        priority: Priority.
        command: Program and its arguments.
        cwd: Working directory.
        request: Resources that it asks for.
        expected_seconds: Expected length in seconds, or None.
        preemptible: Whether it can go on from a checkpoint.
        submitted_at: Time of its submission.
        started_at: Time of its newest start, or None.
        ended_at: Time of its end, or None.
        exit_code: Exit code, negative for a signal, or None.
        num_attempts: Number of its starts.
        token: Name of its newest start, or "".
        allocation: Resources that it holds, or held last.
        message: Reason of its state in words: why it waits, or why it failed.
        scaling: Sentence that says why it has its number of hosts, or "", as after its end.
    """

    number: int
    name: str
    user: str
    team: str
    state: str
    priority: int
    command: tuple[str, ...]
    cwd: str
    request: ResourceRequest
    expected_seconds: float | None
    preemptible: bool
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    num_attempts: int
    token: str
    allocation: Allocation
    message: str
    scaling: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEvent:
    """One event of a job.

    Args:
        job: Number of the job.
        time: Time in seconds since 1970.
        kind: Kind, such as "submit", "start", "preempt" or "end".
        text: Sentence that says what happened.
    """

    job: int
    time: float
    kind: str
    text: str


class JobQueue:
    """The jobs in one database.

    Args:
        store: Database of the queue.
        policy: Rules of the order of jobs, for the reasons in words.
    """

    def __init__(self, store: QueueStore, policy: QueuePolicy | None = None) -> None:
        self._store = store
        self._policy = policy or QueuePolicy()

    def submit(self, submission: JobSubmission) -> int:
        """Add a job and return its number.

        Args:
            submission: Description of the job.

        Raises:
            UsageError: the command is empty, or a number is out of its range.
        """
        _check(submission)
        now = time.time()
        fields = asdict(submission)
        with self._store.transaction("submit") as session:
            row = JobRow(
                **{key: fields[key] for key in _COPIED},
                name=submission.name or submission.command[0].rpartition("/")[2],
                state="held" if submission.held else "waiting",
                command=list(submission.command),
                submitted_at=now,
            )
            session.add(row)
            session.flush()
            note(session, row.number, now, "submit", f"submitted by {row.user or 'unknown'}")
            return row.number

    def impossible(self, request: ResourceRequest) -> str:
        """Return the reason why no set of the machines can ever hold a request, or ""."""
        with self._store.transaction() as session:
            return never(request, read_state(session, time.time(), self._policy))

    def jobs(self, *, ended: bool = False) -> list[JobRecord]:
        """Return the jobs in the order of their numbers, with reasons why they wait.

        Args:
            ended: Whether jobs that have ended are returned too (default False).
        """
        query = select(JobRow).order_by(JobRow.number)
        if not ended:
            query = query.where(JobRow.state.not_in(END_STATES))
        with self._store.transaction() as session:
            return self._records(session, list(session.scalars(query)))

    def job(self, number: int) -> JobRecord:
        """Return one job.

        Raises:
            UsageError: there is no such job.
        """
        with self._store.transaction() as session:
            return self._records(session, [_find(session, number)])[0]

    def events(self, number: int | None = None, newest: int = 100) -> list[JobEvent]:
        """Return events in their order.

        Args:
            number: Number of a job (default None: all jobs).
            newest: Largest number of events; the newest ones are returned (default 100).
        """
        query = select(QueueEventRow).order_by(QueueEventRow.number.desc()).limit(newest)
        with self._store.transaction() as session:
            if number is not None:
                query = query.where(QueueEventRow.job == _find(session, number).number)
            rows = list(session.scalars(query))
        return [JobEvent(job=r.job, time=r.time, kind=r.kind, text=r.text) for r in reversed(rows)]

    def cancel(self, number: int) -> str:
        """Cancel a job, and return its new state: one that holds resources is told to end.

        Raises:
            UsageError: there is no such job, or it has ended.
        """
        with self._store.transaction("cancel") as session:
            row = _find(session, number)
            if row.state in END_STATES:
                raise UsageError(f"job {number} cannot be cancelled: it has {row.state} already")
            now = time.time()
            if row.state in ACTIVE_STATES:
                row.state = "cancelling"
            else:
                row.state, row.ended_at, row.message = "cancelled", now, "on request"
            note(session, number, now, "cancel", "cancelled on request")
            return row.state

    def hold(self, number: int) -> None:
        """Let a waiting job wait until it is released.

        Raises:
            UsageError: there is no such job, or it does not wait.
        """
        self._change(number, "waiting", "held", "hold")

    def release(self, number: int) -> None:
        """Let a held job start when it can.

        Raises:
            UsageError: there is no such job, or it is not held.
        """
        self._change(number, "held", "waiting", "release")

    def set_priority(self, number: int, priority: int | None = None) -> int:
        """Set the priority of a job, and return it.

        Args:
            number: Number of the job.
            priority: Priority (default None: one more than any other waiting job has).

        Raises:
            UsageError: there is no such job, or it has ended.
        """
        with self._store.transaction("priority") as session:
            row = _find(session, number)
            if row.state in END_STATES:
                raise UsageError(f"job {number} has {row.state}; its priority has no effect")
            others = select(JobRow.priority).where(JobRow.state == "waiting")
            highest = max(session.scalars(others.where(JobRow.number != number)), default=-1)
            row.priority = highest + 1 if priority is None else priority
            note(session, number, time.time(), "priority", f"priority {row.priority}")
            return row.priority

    def usage(self) -> dict[str, float]:
        """Return the GPU seconds of users with their decay, without jobs that run now."""
        with self._store.transaction() as session:
            return dict(read_state(session, time.time(), self._policy).usage)

    def _change(self, number: int, before: str, after: str, kind: str) -> None:
        with self._store.transaction(kind) as session:
            row = _find(session, number)
            if row.state != before:
                raise UsageError(
                    f"job {number} is {row.state}; {kind} needs a job that is {before}"
                )
            row.state = after
            note(session, number, time.time(), kind, f"is {after}")

    def _records(self, session: Session, rows: list[JobRow]) -> list[JobRecord]:
        reasons: Mapping[int, str] = {}
        if any(row.state == "waiting" for row in rows):
            reasons = plan(read_state(session, time.time(), self._policy)).reasons
        attempts: dict[int, AttemptRow] = {}
        if rows:
            among = AttemptRow.job.between(rows[0].number, rows[-1].number)
            query = select(AttemptRow).where(among).order_by(AttemptRow.decided_at)
            attempts = {attempt.job: attempt for attempt in session.scalars(query)}
        return [_record(row, attempts.get(row.number), reasons.get(row.number)) for row in rows]


_COPIED = (
    *("user", "team", "priority", "environ", "request", "cwd", "expected_seconds"),
    *("preemptible", "grace_seconds", "spec"),
)


def _check(submission: JobSubmission) -> None:
    request = submission.request
    counts = (request.gpus, request.gpu_memory_mib, request.cpus, request.memory_mib)
    if not submission.command or not submission.command[0]:
        raise UsageError("the job has no command; give a program and its arguments")
    if min(*counts, *request.accelerators.values()) < 0:
        raise UsageError(f"the job asks for {request}; allowed: numbers from 0 on")
    if not 1 <= request.min_hosts <= request.max_hosts:
        raise UsageError(
            f"the job asks for {request.min_hosts} to {request.max_hosts} hosts; allowed: 1 or"
            " more, and no fewer at most than at least"
        )


def _find(session: Session, number: int) -> JobRow:
    row = session.get(JobRow, number)
    if row is None:
        newest = session.scalars(select(JobRow.number).order_by(JobRow.number.desc())).first()
        known = f"numbers go up to {newest}" if newest else "the queue has had no job"
        raise UsageError(f"there is no job {number}; {known}")
    return row


def _record(row: JobRow, attempt: AttemptRow | None, reason: str | None) -> JobRecord:
    return JobRecord(
        number=row.number,
        name=row.name,
        user=row.user,
        team=row.team,
        state=row.state,
        priority=row.priority,
        command=tuple(row.command),
        cwd=row.cwd,
        request=ResourceRequest(**row.request),
        expected_seconds=row.expected_seconds,
        preemptible=row.preemptible,
        submitted_at=row.submitted_at,
        started_at=attempt.decided_at if attempt else None,
        ended_at=row.ended_at,
        exit_code=row.exit_code,
        num_attempts=row.num_attempts,
        token=attempt.token if attempt else "",
        allocation=allocation_of(attempt.allocation) if attempt else (),
        message=(reason or "starts now") if row.state == "waiting" else row.message,
        scaling="" if row.state in END_STATES else row.scaling,
    )
