"""The sizes of elastic jobs: decided by `sizes`, written down, and carried out by new starts.

A job that should have another number of machines is told to save and end, like one that makes room,
and starts again from its checkpoint with the new number. Only preemptible jobs are changed so.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from slipstream.cluster.progress import measured_rates
from slipstream.cluster.queue.attempts import note
from slipstream.cluster.queue.autoscaling.demand import machine_demand
from slipstream.cluster.queue.autoscaling.scaled_group import ScaledGroup, read_scaled_group
from slipstream.cluster.queue.autoscaling.sizes import ScalingJob, scale
from slipstream.cluster.queue.capacity import FreeCapacity
from slipstream.cluster.queue.fairness import in_order
from slipstream.cluster.queue.folders import progress_path
from slipstream.cluster.queue.rows import read_state
from slipstream.cluster.queue.shapes import END_STATES, QueuePolicy, QueueState, counted
from slipstream.cluster.queue.store import AttemptRow, JobRow, QueueStore

FIXED = "is not preemptible, so it keeps its"

Rates = Mapping[int, Mapping[int, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeDecision:
    """The sizes that jobs and the group should have.

    Args:
        machines: Number of machines of the group.
        hosts: Number of hosts of each job, by its number.
        reasons: Sentences that say why, by the number of the job.
        resizes: Numbers of the jobs that are told to start again with another number of hosts.
    """

    machines: int
    hosts: Mapping[int, int]
    reasons: Mapping[int, str]
    resizes: tuple[int, ...]


def job_rates(session: Session, store: QueueStore) -> dict[int, dict[int, float]]:
    """Return the speeds that jobs have told in all their starts, by job and number of hosts.

    Args:
        session: Session of a transaction.
        store: Database of the queue.
    """
    query = (
        select(AttemptRow.job, AttemptRow.token)
        .join(JobRow, JobRow.number == AttemptRow.job)
        .where(JobRow.state.not_in(END_STATES))
        .order_by(AttemptRow.decided_at)
    )
    rates: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for job, token in session.execute(query):
        rates[job].update(measured_rates(progress_path(store.home, token)))
    return dict(rates)


def decide_sizes(state: QueueState, rates: Rates, scaled: ScaledGroup) -> SizeDecision:
    """Return the sizes for a state of the queue.

    Args:
        state: State of the queue.
        rates: Measured samples per second by job and number of hosts.
        scaled: Group, with its limits and prices.
    """
    active = [job for job in state.jobs if job.is_active]
    fixed = {job.number: len(job.allocation) for job in active if not job.preemptible}
    jobs = [
        ScalingJob(
            number=job.number,
            min_hosts=fixed.get(job.number, job.request.min_hosts),
            max_hosts=fixed.get(job.number, job.request.max_hosts),
            hosts=len(job.allocation),
            rates=rates.get(job.number, {}),
        )
        for job in (*active, *in_order(state))
    ]
    num_others = sum(machine.group != scaled.group for machine in state.machines)
    plan = scale(jobs, scaled.policy(num_others))
    hosts = {job.number: plan.hosts[job.number] or job.min_hosts for job in jobs}
    return SizeDecision(
        machines=machine_demand(state, hosts, scaled),
        hosts=hosts,
        reasons={
            **plan.reasons,
            **{number: f"{FIXED} {counted(count, 'machine')}" for number, count in fixed.items()},
        },
        resizes=_resizes(state, hosts, rates, scaled),
    )


def _resizes(
    state: QueueState, hosts: Mapping[int, int], rates: Rates, scaled: ScaledGroup
) -> tuple[int, ...]:
    """Return the jobs to start again: they have told their speed, and further machines are free."""
    active = [job for job in state.jobs if job.is_active]
    free = FreeCapacity.of(state.machines, [job.allocation for job in active])
    chosen: list[int] = []
    for job in active:
        more = hosts[job.number] - len(job.allocation)
        is_settled = state.now - (job.started_at or state.now) >= scaled.settle_seconds
        is_known = len(job.allocation) in rates.get(job.number, {})
        if more == 0 or not (
            job.preemptible and job.state == "running" and is_settled and is_known
        ):
            continue
        extra = free.place_more(job.request, job.allocation, max(more, 0))
        if len(extra) == max(more, 0):
            free.take(extra)
            chosen.append(job.number)
    return tuple(chosen)


def write_sizes(store: QueueStore, policy: QueuePolicy) -> SizeDecision | None:
    """Decide on sizes, and write them down; None if no group is scaled."""
    now = time.time()
    with store.transaction("sizes") as session:
        scaled = read_scaled_group(session)
        if scaled is None:
            return None
        state = read_state(session, now, policy)
        decision = decide_sizes(state, job_rates(session, store), scaled)
        for job in state.jobs:
            if job.number in decision.hosts and job.request.max_hosts > job.request.min_hosts:
                _write_size(session, job.number, decision, now)
        return decision


def forget_sizes(store: QueueStore) -> None:
    """Let all jobs have as many hosts as they can use again."""
    with store.transaction("sizes") as session:
        for row in session.scalars(select(JobRow).where(JobRow.wanted_hosts.is_not(None))):
            row.wanted_hosts, row.scaling = None, ""


def _write_size(session: Session, number: int, decision: SizeDecision, now: float) -> None:
    row = session.get_one(JobRow, number)
    hosts, reason = decision.hosts[number], decision.reasons[number]
    if row.wanted_hosts != hosts or _words(row.scaling) != _words(reason):
        note(session, number, now, "scale", reason)
    if row.wanted_hosts != hosts or row.scaling != reason:
        row.wanted_hosts, row.scaling = hosts, reason
    if number in decision.resizes:
        row.state = "preempting"
        query = select(AttemptRow).where(AttemptRow.job == number, AttemptRow.ended_at.is_(None))
        session.scalars(query).one().preempted_at = now
        note(session, number, now, "resize", f"starts again on {counted(hosts, 'machine')}")


def _words(text: str) -> str:
    """Return a reason without its numbers, which change all the time."""
    return re.sub(r"[\d.]+", "", text)
