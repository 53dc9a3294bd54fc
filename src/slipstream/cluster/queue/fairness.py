"""The order of waiting jobs, and the quotas of users and teams.

Jobs with the higher priority come first; waiting raises the priority, so every job is first at some
time. Among jobs of one priority, those of the user come first who has used the fewest GPU seconds
in proportion to the user's weight; a GPU second counts half after a week. A user's own jobs keep
the order of their submission.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from slipstream.cluster.queue.shapes import (
    Allocation,
    QueueJob,
    QueuePolicy,
    QueueState,
    Quota,
    counted,
    gpu_units,
)


def decayed(gpu_seconds: float, age_seconds: float, policy: QueuePolicy) -> float:
    """Return what used GPU seconds count after some time.

    Args:
        gpu_seconds: Used GPU seconds.
        age_seconds: Time in seconds since their use.
        policy: Rules with the half-life.
    """
    return gpu_seconds * 0.5 ** (max(0.0, age_seconds) / policy.half_life_seconds)


def current_priority(job: QueueJob, state: QueueState) -> int:
    """Return a job's priority together with the points for its time of waiting."""
    waited = max(0.0, state.now - job.submitted_at)
    return job.priority + math.floor(waited / state.policy.ageing_seconds)


def in_order(state: QueueState) -> list[QueueJob]:
    """Return the waiting jobs, the one that should start first in front."""
    usage = current_usage(state)
    weights = {quota.name: quota.weight for quota in state.quotas if quota.kind == "user"}

    def key(job: QueueJob) -> tuple[float, ...]:
        used = usage.get(job.user, 0.0) / weights.get(job.user, 1.0)
        return (-current_priority(job, state), used, job.submitted_at, job.number)

    return sorted((job for job in state.jobs if job.state == "waiting"), key=key)


def current_usage(state: QueueState) -> dict[str, float]:
    """Return the GPU seconds of users, with those of jobs that hold GPUs now."""
    usage = dict(state.usage)
    for job in state.jobs:
        if job.is_active and job.started_at is not None:
            seconds = max(0.0, state.now - job.started_at) * gpu_units(job.allocation)
            usage[job.user] = usage.get(job.user, 0.0) + seconds
    return usage


class QuotaCheck:
    """The quotas, with the jobs and GPUs that count towards them.

    Args:
        quotas: Limits of users and teams.
        jobs: Jobs; those that hold resources count.
    """

    def __init__(self, quotas: Iterable[Quota], jobs: Iterable[QueueJob]) -> None:
        self._quotas = {(quota.kind, quota.name): quota for quota in quotas}
        self._num_jobs: dict[tuple[str, str], int] = {}
        self._gpus: dict[tuple[str, str], float] = {}
        for job in jobs:
            if job.is_active:
                self.count(job, job.allocation)

    def count(self, job: QueueJob, allocation: Allocation) -> None:
        """Count a job that has got an allocation."""
        for group in _groups(job):
            self._num_jobs[group] = self._num_jobs.get(group, 0) + 1
        self.count_more(job, allocation)

    def count_more(self, job: QueueJob, allocation: Allocation) -> None:
        """Count further resources of a job."""
        for group in _groups(job):
            self._gpus[group] = self._gpus.get(group, 0.0) + gpu_units(allocation)

    def objection(self, job: QueueJob, allocation: Allocation, num_jobs: int = 1) -> str:
        """Return the reason why a quota forbids an allocation now, or "".

        Args:
            job: Job that would get the allocation.
            allocation: Resources.
            num_jobs: Number of jobs that start: 1 (the default), or 0 for more of a started job.
        """
        for group in _groups(job):
            quota = self._quotas.get(group)
            if quota is None:
                continue
            owner = f"the quota of {quota.kind} {quota.name}"
            running = self._num_jobs.get(group, 0)
            if quota.max_jobs is not None and running + num_jobs > quota.max_jobs:
                return (
                    f"{owner} is {counted(quota.max_jobs, 'job')} at a time; now running: {running}"
                )
            used, wanted = self._gpus.get(group, 0.0), gpu_units(allocation)
            if quota.max_gpus is not None and used + wanted > quota.max_gpus + 1e-9:
                return (
                    f"{owner} is {quota.max_gpus:g} GPUs; {used:g} are in use, and the job needs"
                    f" {wanted:g}"
                )
        return ""


def _groups(job: QueueJob) -> list[tuple[str, str]]:
    return [(kind, name) for kind, name in (("user", job.user), ("team", job.team)) if name]
