"""How many machines there should be, and how many of them each elastic job should have.

An hour of a job on n machines costs n times the price of a machine, and the price of an hour of
waiting for its result. With r(n) samples per second, a sample costs (n * machine + waiting) / r(n),
and the best n has the least cost of a sample. Nobody knows r(n) before, so a job begins with its
smallest number of hosts, and doubles while the measured rates say that a sample gets cheaper. A job
that scales badly goes back to half, and is told why. If there are too few machines, every job gets
its smallest number first, and the doublings that save the most come next.

An idle machine is kept for the time in which it costs as much as a new one would: its start, and
the waiting for it (the break-even rule of ski rental: at most twice the cost with full knowledge).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slipstream.cluster.queue.shapes import counted

# Least saving for which a job is changed: below it, the pause of the change is not earned back. A
# guess, which tests/soak/scaling.py tries.
LEAST_SAVING = 0.03


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingPolicy:
    """The limits and prices of machines.

    Args:
        min_machines: Smallest number of machines.
        max_machines: Largest number of machines.
        machine_price: Price of a machine in US dollars per hour.
        waiting_price: Price of an hour in which a job has not ended, in US dollars.
        boot_seconds: Time from the request for a machine until it can be used (default 180).
    """

    min_machines: int
    max_machines: int
    machine_price: float
    waiting_price: float
    boot_seconds: float = 180.0

    @property
    def idle_seconds(self) -> float:
        """Time for which an idle machine is kept."""
        return self.boot_seconds * (1.0 + self.waiting_price / self.machine_price)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingJob:
    """A job as the scaling sees it.

    Args:
        number: Number of the job.
        min_hosts: Smallest number of machines with which it runs (default 1).
        max_hosts: Largest number of machines that it can use (default 1).
        hosts: Number of machines that it has now (default 0: it waits).
        rates: Measured samples per second by the number of machines (default none).
    """

    number: int
    min_hosts: int = 1
    max_hosts: int = 1
    hosts: int = 0
    rates: Mapping[int, float] = field(default_factory=dict[int, float])


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingPlan:
    """The numbers of machines.

    Args:
        machines: Number of machines that should be there.
        hosts: Number of machines by the number of the job; 0 for those that have to wait.
        reasons: Sentences that say why a job has its number of machines.
    """

    machines: int
    hosts: dict[int, int]
    reasons: dict[int, str]


def scale(jobs: Sequence[ScalingJob], policy: ScalingPolicy) -> ScalingPlan:
    """Return the numbers of machines for the jobs of a queue.

    Args:
        jobs: Jobs that wait or run, in the order in which they should start.
        policy: Limits and prices.
    """
    hosts, left = {job.number: 0 for job in jobs}, policy.max_machines
    for job in jobs:
        if job.min_hosts <= left:
            hosts[job.number] = job.min_hosts
            left -= job.min_hosts
    reasons = {job.number: "" for job in jobs}
    steps = sorted(
        (-saving, order, job, more)
        for order, job in enumerate(jobs)
        for saving, more in _doublings(job, policy, reasons)
    )
    for _, _, job, more in steps:
        if hosts[job.number] and more <= left:
            hosts[job.number] += more
            left -= more
    for job in jobs:
        if not hosts[job.number]:
            reasons[job.number] = f"waits: other jobs have all {policy.max_machines} machines"
    machines = max(policy.min_machines, policy.max_machines - left)
    return ScalingPlan(machines=machines, hosts=hosts, reasons=reasons)


def sample_price(hosts: int, rate: float, policy: ScalingPolicy) -> float:
    """Return the price of a sample in US dollars, times 3600.

    Args:
        hosts: Number of machines.
        rate: Samples per second on them.
        policy: Prices.
    """
    return (hosts * policy.machine_price + policy.waiting_price) / rate


def _doublings(
    job: ScalingJob, policy: ScalingPolicy, reasons: dict[int, str]
) -> list[tuple[float, int]]:
    """Return the savings and the numbers of further machines of a job's doublings, in order.

    The last of them is a trial, if its rate has not been measured: the gain of the doubling before
    is expected again, or full gain for the first one.
    """
    found: list[tuple[float, int]] = []
    hosts, gain = job.min_hosts, 2.0
    while 2 * hosts <= job.max_hosts:
        rate = job.rates.get(hosts)
        if rate is None:
            reasons[job.number] = f"runs on {counted(hosts, 'machine')} until its speed is known"
            return found
        doubled = job.rates.get(2 * hosts, rate * gain)
        gain = doubled / rate
        before, after = sample_price(hosts, rate, policy), sample_price(2 * hosts, doubled, policy)
        saving = 1.0 - after / before
        if found and saving > found[-1][0]:
            saving = found[-1][0]  # the doublings of a job come one after the other
        if saving < LEAST_SAVING:
            reasons[job.number] = _told(hosts, rate, doubled, 2 * hosts in job.rates)
            return found
        found.append((saving, hosts))
        hosts *= 2
    reasons[job.number] = f"runs on {counted(hosts, 'machine')}, the most that it can use"
    return found


def _told(hosts: int, rate: float, doubled: float, is_measured: bool) -> str:
    share = doubled / 2 / rate
    how = "has" if is_measured else "would have"
    speeds = f"{doubled / 2 / hosts:.3g} against {rate / hosts:.3g} samples/s"
    return (
        f"runs on {counted(hosts, 'machine')}: on {2 * hosts} each machine {how} {share:.0%} of the"
        f" speed ({speeds}), so a sample would cost more"
    )
