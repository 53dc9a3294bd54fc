"""The reservation of the first job that does not fit, and the choice of jobs that make room for it.

This is EASY backfill: only the first blocked job gets a reservation, at the earliest time at which
the running jobs leave it enough. A later job may start at once if it ends before that time, or if
it needs nothing of the reservation. Conservative backfill, a reservation for every job, costs a
plan over all waiting jobs in each round and loses throughput when lengths are estimates (Mu'alem
and Feitelson, IEEE TPDS 12(6), 2001); the order of jobs ages, so every job is first at some time,
and one reservation is enough against starvation.

A job of unknown length counts as endless: it is never started in front of a reservation with
resources that the reservation needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from slipstream.cluster.queue.capacity import FreeCapacity
from slipstream.cluster.queue.shapes import Allocation, QueueJob, ResourceRequest

# Time that is left to a job that has exceeded its expected length, as a share of this length. A
# guess: it only has to be positive and much less than the length.
OVERRUN_SHARE = 0.1


def expected_end(job: QueueJob, now: float) -> float:
    """Return the time at which a job is expected to give its resources back, or infinity.

    Args:
        job: Job that holds resources.
        now: Time in seconds since 1970.
    """
    if job.preempted_at is not None:
        return max(now, job.preempted_at + job.grace_seconds)
    if job.expected_seconds is None:
        return math.inf
    end = (job.started_at or now) + job.expected_seconds
    return max(end, now + OVERRUN_SHARE * job.expected_seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """The resources that the first blocked job will get.

    Args:
        job: Job that has the reservation.
        starts_at: Time of its start at the latest in seconds since 1970, or infinity.
        after: Number of the job whose end makes it possible.
        spare: Resources that are free at that time beside the reservation.
    """

    job: QueueJob
    starts_at: float
    after: int
    spare: FreeCapacity

    def place(self, job: QueueJob, free: FreeCapacity, now: float) -> Allocation | None:
        """Return resources for a job that do not delay the reservation, or None.

        Args:
            job: Job that would start now.
            free: Resources that are free now.
            now: Time in seconds since 1970.
        """
        request = job.request
        length = math.inf if job.expected_seconds is None else job.expected_seconds
        if now + length <= self.starts_at and length != math.inf:
            return free.place(request, request.min_hosts)
        return free.at_most(self.spare).place(request, request.min_hosts)

    def count(self, job: QueueJob, allocation: Allocation, now: float) -> None:
        """Count a job that has started, if it goes on at the time of the reservation."""
        length = math.inf if job.expected_seconds is None else job.expected_seconds
        if now + length > self.starts_at or length == math.inf:
            self.spare.take(allocation)


def reserve(
    job: QueueJob, free: FreeCapacity, active: list[QueueJob], now: float
) -> Reservation | None:
    """Return the earliest reservation for a job, or None if no end of other jobs makes it fit.

    Args:
        job: Job that does not fit now.
        free: Resources that are free now.
        active: Jobs that hold resources.
        now: Time in seconds since 1970.
    """
    later = free.copy()
    for other in sorted(active, key=lambda one: (expected_end(one, now), one.number)):
        later.give(other.allocation)
        allocation = later.place(job.request, job.request.min_hosts)
        if allocation is not None:
            later.take(allocation)
            at = expected_end(other, now)
            return Reservation(job=job, starts_at=at, after=other.number, spare=later)
    return None


def victims(job: QueueJob, free: FreeCapacity, active: list[QueueJob]) -> list[QueueJob]:
    """Return the jobs that must make room for a job, or none if this is not possible or needed.

    Only preemptible jobs of a lower priority make room, those of the lowest priority first, and
    among these the ones that started last, which lose the least.

    Args:
        job: Job that does not fit now.
        free: Resources that are free now.
        active: Jobs that hold resources.
    """
    room = free.copy()
    for other in active:
        if other.state in ("preempting", "cancelling"):
            room.give(other.allocation)
    if _fits(room, job.request):
        return []
    lower = [
        other
        for other in active
        if other.state == "running" and other.preemptible and other.priority < job.priority
    ]
    chosen: list[QueueJob] = []
    for other in sorted(lower, key=lambda one: (one.priority, -(one.started_at or 0.0))):
        room.give(other.allocation)
        chosen.append(other)
        if _fits(room, job.request):
            return _without_needless(chosen, room, job.request)
    return []


def _without_needless(
    chosen: list[QueueJob], room: FreeCapacity, request: ResourceRequest
) -> list[QueueJob]:
    """Return the jobs without those that can stay; the most urgent of them are spared first."""
    needed = list(chosen)
    for other in reversed(chosen[:-1]):
        room.take(other.allocation)
        if _fits(room, request):
            needed.remove(other)
        else:
            room.give(other.allocation)
    return needed


def _fits(free: FreeCapacity, request: ResourceRequest) -> bool:
    return free.place(request, request.min_hosts) is not None
