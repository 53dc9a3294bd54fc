"""One round of the scheduler: a pure function from the state of the queue to decisions.

Jobs are tried in their order (see `fairness`). Those that fit start; the first one that does not
fit gets a reservation, and jobs of a lower priority make room for it if they can go on from a
checkpoint. Later jobs start only if they do not delay it (see `reservation`). Resources that are
free at the end go to the elastic ones among the jobs that start.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slipstream.cluster.queue.capacity import FreeCapacity
from slipstream.cluster.queue.fairness import QuotaCheck, in_order
from slipstream.cluster.queue.reservation import Reservation, reserve, victims
from slipstream.cluster.queue.shapes import (
    Allocation,
    QueueJob,
    QueueMachine,
    QueueState,
    ResourceRequest,
    counted,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePlan:
    """The decisions of one round.

    Args:
        starts: Allocations by the numbers of the jobs that start, in their order.
        preempts: Numbers of the jobs that make room, with the job for which they do.
        reasons: Sentences that say why a job waits, by its number.
    """

    starts: dict[int, Allocation] = field(default_factory=dict[int, Allocation])
    preempts: dict[int, int] = field(default_factory=dict[int, int])
    reasons: dict[int, str] = field(default_factory=dict[int, str])


def plan(state: QueueState, *, explain: bool = True) -> QueuePlan:
    """Return the decisions for a state of the queue.

    Args:
        state: Jobs, machines, quotas and time.
        explain: Whether the plan has reasons (default True), which take most of the time.
    """
    return _Round(state, explain).run()


def possible(request: ResourceRequest, machines: Sequence[QueueMachine]) -> str:
    """Return the reason why a request does not fit these machines even if all are free, or "".

    Args:
        request: Resources of each host and number of hosts.
        machines: All machines; closed ones count as if they were open.
    """
    num_hosts = _empty(machines).num_hosts(request)
    if num_hosts >= request.min_hosts:
        return ""
    where = " behind ssh" if request.on == "ssh" else ""
    return (
        f"never starts: {num_hosts} of {len(machines)} machines{where} have {describe(request)},"
        f" and the job needs {request.min_hosts}"
    )


def never(request: ResourceRequest, state: QueueState) -> str:
    """Return the reason why a request fits neither the machines nor those that may come, or "".

    Args:
        request: Resources of each host and number of hosts.
        state: State of the queue.
    """
    if state.group and not state.coming:
        return ""  # nobody knows what the machines of the group have
    return possible(request, (*state.machines, *state.coming))


def _empty(machines: Sequence[QueueMachine]) -> FreeCapacity:
    return FreeCapacity.of([replace(machine, is_open=True) for machine in machines])


def describe(request: ResourceRequest) -> str:
    """Return the resources of one host in words, such as "2 GPUs (H100), 4 CPUs"."""
    words: list[str] = []
    if request.gpus:
        kind = f" ({request.gpu})" if request.gpu else ""
        words.append(counted(request.gpus, "GPU") + kind)
    if request.gpus and request.gpu_memory_mib:
        words[-1] = f"{request.gpu_memory_mib / 1024:.4g} GiB of {words[-1]}"
    words.append(counted(request.cpus, "CPU"))
    if request.memory_mib:
        words.append(f"{request.memory_mib / 1024:.4g} GiB of memory")
    words += [f"{count} {name}" for name, count in sorted(request.accelerators.items())]
    return ", ".join(words)


class _Round:
    """The resources and decisions while one round goes on."""

    def __init__(self, state: QueueState, explain: bool) -> None:
        self._state = state
        self._explain = explain
        self._active = [job for job in state.jobs if job.is_active]
        held = [job.allocation for job in self._active]
        self._free = FreeCapacity.of(state.machines, held)
        self._quotas = QuotaCheck(state.quotas, state.jobs)
        self._plan = QueuePlan()
        self._reservation: Reservation | None = None
        # Requests that do not fit now: others like them are not tried again in this round.
        self._too_large: set[object] = set()
        # Allocations that requests would get if all machines were free, and why they would not.
        self._alone: dict[object, Allocation | None] = {}
        self._too_small: dict[object, str] = {}

    def run(self) -> QueuePlan:
        jobs = in_order(self._state)
        for job in jobs:
            self._try(job)
        for job in jobs:
            if job.number in self._plan.starts:
                self._extend(job)
        return self._plan

    def _try(self, job: QueueJob) -> None:
        request, now = job.request, self._state.now
        if self._reservation is not None and request.key in self._too_large:
            self._wait(job)
            return
        if self._reservation is None:
            allocation = self._free.place(request, request.min_hosts)
        else:
            allocation = self._reservation.place(job, self._free, now)
        if allocation is None:
            self._block(job)
            return
        objection = self._quotas.objection(job, allocation)
        if objection:
            self._plan.reasons[job.number] = objection
            return
        self._start(job, allocation)

    def _start(self, job: QueueJob, allocation: Allocation) -> None:
        now = self._state.now
        self._free.take(allocation)
        self._quotas.count(job, allocation)
        if self._reservation is not None:
            self._reservation.count(job, allocation, now)
        self._plan.starts[job.number] = allocation
        self._active.append(replace(job, state="starting", started_at=now, allocation=allocation))

    def _block(self, job: QueueJob) -> None:
        """Say why a job waits; reserve resources for it if it is the first one that has to."""
        if self._free.place(job.request, job.request.min_hosts) is None:
            self._too_large.add(job.request.key)
        is_first = self._reservation is None
        objection = self._objection_on_empty_machines(job) if is_first or self._explain else ""
        if objection:
            self._plan.reasons[job.number] = objection
            return
        if is_first and not self._does_not_fit(job.request):
            self._reservation = reserve(job, self._free, self._active, self._state.now)
            for victim in victims(job, self._free, self._active):
                self._plan.preempts[victim.number] = job.number
        self._wait(job)

    def _objection_on_empty_machines(self, job: QueueJob) -> str:
        """Return why a quota forbids a job that does not fit: such a job keeps nothing free."""
        request = job.request
        if request.key not in self._alone:
            empty = _empty(self._state.machines)
            self._alone[request.key] = empty.place(request, request.min_hosts)
        allocation = self._alone[request.key]
        return self._quotas.objection(job, allocation) if allocation else ""

    def _wait(self, job: QueueJob) -> None:
        if self._explain:
            self._plan.reasons[job.number] = self._reason(job)

    def _reason(self, job: QueueJob) -> str:
        request, first = job.request, self._reservation
        impossible = never(request, self._state) if self._does_not_fit(request) else ""
        if impossible:
            return impossible
        if self._does_not_fit(request):
            return f"waits for machines of {self._state.group}, which come when jobs need them"
        text = _shortage(request, self._free)
        if first is None:
            return f"{text}; no machine that has them is open"
        if first.job.number != job.number:
            return f"{text}; job {first.job.number} is before it" if text else _held_back(first)
        if self._plan.preempts:
            numbers = ", ".join(map(str, self._plan.preempts))
            return f"{text}; makes room by saving and stopping job {numbers}"
        if first.starts_at == math.inf:
            return f"{text}; starts when job {first.after}, whose length is not known, ends"
        clock = time.strftime("%H:%M", time.localtime(first.starts_at))
        return f"{text}; starts at the latest at {clock}, when job {first.after} ends"

    def _does_not_fit(self, request: ResourceRequest) -> str:
        if request.key not in self._too_small:
            self._too_small[request.key] = possible(request, self._state.machines)
        return self._too_small[request.key]

    def _extend(self, job: QueueJob) -> None:
        """Give an elastic job that starts as many of its further hosts as are free."""
        request, allocation = job.request, self._plan.starts[job.number]
        most = request.max_hosts if job.wanted_hosts is None else job.wanted_hosts
        more = most - request.min_hosts
        free = (
            self._free if self._reservation is None else self._free.at_most(self._reservation.spare)
        )
        while more > 0:
            extra = free.place_more(request, allocation, more)
            if not extra:
                return
            if not self._quotas.objection(job, extra, num_jobs=0):
                self._free.take(extra)
                if self._reservation is not None:
                    self._reservation.spare.take(extra)
                self._quotas.count_more(job, extra)
                self._plan.starts[job.number] = (*allocation, *extra)
                return
            more = len(extra) - 1


def _shortage(request: ResourceRequest, free: FreeCapacity) -> str:
    """Return the resources that are missing in words, or "" if enough are free."""
    hosts, wanted = free.num_hosts(request), request.min_hosts
    if hosts >= wanted:
        return ""
    if request.gpus:
        size = f" with {request.gpu_memory_mib / 1024:.4g} GiB" if request.gpu_memory_mib else ""
        needed = counted(request.gpus * wanted, "free GPU")
        return f"waits for {needed}{size}; free now: {free.num_gpus(request)}"
    return f"waits for {describe(request)} on {counted(wanted, 'host')}; free on {hosts}"


def _held_back(first: Reservation) -> str:
    return f"would delay job {first.job.number}, for which resources are kept"
