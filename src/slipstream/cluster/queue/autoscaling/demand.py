"""How many machines of a group the jobs of the queue need: a pure function.

The jobs are placed as the scheduler would place them, on the machines that are there and on as many
others as may come. Machines on which something was placed are needed. So shares of a
machine count as shares, and a job that a quota holds back, or that fits nowhere, needs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.cluster.queue.autoscaling.scaled_group import ScaledGroup
from slipstream.cluster.queue.capacity import FreeCapacity
from slipstream.cluster.queue.fairness import QuotaCheck, in_order
from slipstream.cluster.queue.shapes import Allocation, QueueJob, QueueState


def machine_demand(state: QueueState, hosts: Mapping[int, int], scaled: ScaledGroup) -> int:
    """Return the number of machines of a group that should be there.

    Args:
        state: State of the queue.
        hosts: Number of hosts that each job should have, by its number.
        scaled: Group, with its limits.
    """
    machines = [*state.machines, *scaled.coming(state.machines)]
    active = [job for job in state.jobs if job.is_active]
    free = FreeCapacity.of(machines, [job.allocation for job in active])
    quotas = QuotaCheck(state.quotas, state.jobs)
    allocations = [job.allocation for job in active]
    for job in active:
        more = hosts.get(job.number, 0) - len(job.allocation)
        if more > 0:
            allocations.append(free.place_more(job.request, job.allocation, more))
            free.take(allocations[-1])
    num_unplaced = 0
    for job in in_order(state):
        allocation = _place(job, hosts.get(job.number, 0), free)
        if allocation is None:
            num_unplaced += 1
        elif not quotas.objection(job, allocation):
            quotas.count(job, allocation)
            free.take(allocation)
            allocations.append(allocation)
    members = {machine.name for machine in machines if machine.group == scaled.group}
    if scaled.like is None and num_unplaced:
        return max(scaled.min_machines, 1)  # the first machine shows what the others will have
    used = {share.machine for allocation in allocations for share in allocation} & members
    return min(max(len(used), scaled.min_machines), scaled.max_machines)


def _place(job: QueueJob, num_hosts: int, free: FreeCapacity) -> Allocation | None:
    """Return resources for a job that waits, as many hosts as it should have, or its smallest."""
    least = job.request.min_hosts
    return (num_hosts > least and free.place(job.request, num_hosts)) or free.place(
        job.request, least
    )
