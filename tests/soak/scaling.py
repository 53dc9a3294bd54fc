"""Compare the scaling of machines with a fixed set of machines and with who knows the future.

Jobs arrive at random times. Their lengths are those of Microsoft's Philly cluster (83,154 jobs of
2017; github.com/msr-fiddle/philly-traces, as run times in seconds in
github.com/alibaba/clusterdata, cluster-trace-gpu-v2020/analysis/philly_runtime.csv); below are
their percentiles, between which lengths are interpolated. Not from a trace are the largest numbers
of machines and how well jobs scale: n machines do n / (1 + c (n - 1)) times the work of one, with c
drawn from 0.02, 0.1 and 0.5.

The cost is the same for all: machines cost MACHINE an hour from the request for them to their
release, and each job costs WAITING an hour from its submission to its end.

- ours: `slipstream.cluster.queue.autoscaling.sizes` knows neither lengths nor speeds. A machine
  boots for three minutes, a change of a job's machines stops it for half a minute, and its speed is
  known after five minutes, up to 5 % too high or too low.
- fifo: a fixed number of machines, the one that would have been the cheapest for these jobs; jobs
  start in their order with as many machines as they can use. After the last arrival, machines
  without a job cost nothing.
- oracle: every job has its best number of machines from its arrival to its end, machines boot in
  no time and are never idle, and there are as many as anybody wants. Nothing can be cheaper, so the
  true optimum lies between the oracle and ours.

    python tests/soak/scaling.py --seeds 10
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from bisect import bisect_right
from dataclasses import dataclass, field

from slipstream.cluster.queue.autoscaling.sizes import ScalingJob, ScalingPolicy, scale

# Percentiles and run times in seconds.
PHILLY = (
    (0, 0),
    (2, 25),
    (4, 44),
    (6, 51),
    (8, 57),
    (10, 61),
    (12, 64),
    (14, 67),
    (16, 69),
    (18, 72),
    (20, 76),
    (22, 84),
    (24, 110),
    (26, 151),
    (28, 186),
    (30, 229),
    (32, 302),
    (34, 356),
    (36, 486),
    (38, 558),
    (40, 630),
    (42, 726),
    (44, 845),
    (46, 930),
    (48, 1053),
    (50, 1186),
    (52, 1330),
    (54, 1461),
    (56, 1547),
    (58, 1699),
    (60, 1871),
    (62, 2004),
    (64, 2127),
    (66, 2354),
    (68, 2490),
    (70, 2590),
    (72, 2710),
    (74, 2949),
    (76, 3536),
    (78, 4018),
    (80, 4699),
    (82, 5453),
    (84, 5928),
    (86, 7766),
    (88, 9710),
    (90, 12859),
    (92, 18842),
    (94, 31999),
    (96, 69287),
    (98, 167784),
    (99, 287283),
    (99.5, 484497),
    (99.9, 1361015),
    (99.99, 2745152),
    (100, 4628239),
)
MACHINE, WAITING = 1.0, 1.0  # US dollars per hour
POLICY = ScalingPolicy(
    min_machines=0, max_machines=64, machine_price=MACHINE, waiting_price=WAITING
)
PAUSE_SECONDS = 30.0
MEASURE_SECONDS = 300.0
LOADS = (0.25, 0.5, 0.75)
NUM_JOBS = 300
COST_BAR, DISTANCE_BAR = 1.2, 0.5


@dataclass
class SimulatedJob:
    """A job: its arrival, its work in seconds on one machine, and how it scales."""

    number: int
    arrival: float
    work: float
    max_hosts: int
    loss: float
    hosts: int = 0
    left: float = 0.0
    paused_until: float = 0.0
    measured_at: float = math.inf
    rates: dict[int, float] = field(default_factory=dict)
    ended: float = math.inf
    noise: random.Random = field(default_factory=lambda: random.Random(0))

    def rate(self, hosts: int) -> float:
        """Return how many times the work of one machine some machines do."""
        return hosts / (1.0 + self.loss * (hosts - 1))

    def next_event(self, now: float) -> float:
        """Return the time of the end of a pause, of a measurement, or of the job."""
        if not self.hosts:
            return math.inf
        start = max(now, self.paused_until)
        return min(start + self.left / self.rate(self.hosts), self.measured_at)

    def advance(self, now: float, until: float) -> None:
        """Do the work between two times."""
        if self.hosts:
            self.left -= max(0.0, until - max(now, self.paused_until)) * self.rate(self.hosts)
        if until >= self.measured_at - 1e-6:
            self.rates[self.hosts] = self.rate(self.hosts) * self.noise.uniform(0.95, 1.05)
            self.measured_at = math.inf

    def change(self, hosts: int, now: float) -> None:
        """Give the job a number of machines, after a pause if it has run before."""
        self.paused_until = now + (PAUSE_SECONDS if self.hosts else 0.0)
        self.hosts = hosts
        known = hosts in self.rates
        self.measured_at = math.inf if known else self.paused_until + MEASURE_SECONDS


def random_length(draw: random.Random) -> float:
    """Return a length in seconds from the percentiles of the trace."""
    at = draw.uniform(0.0, 100.0)
    index = min(bisect_right(PHILLY, (at, math.inf)), len(PHILLY) - 1)
    (left, low), (right, high) = PHILLY[index - 1], PHILLY[index]
    share = (at - left) / (right - left)
    return math.exp((1 - share) * math.log(max(low, 1.0)) + share * math.log(max(high, 1.0)))


def random_jobs(load: float, seed: int) -> list[SimulatedJob]:
    """Return jobs whose work, on their best machines, is a share of what all machines can do."""
    draw = random.Random(seed)
    jobs = [
        SimulatedJob(
            number,
            0.0,
            random_length(draw),
            draw.choices((1, 2, 4, 8), (40, 25, 20, 15))[0],
            draw.choice((0.02, 0.1, 0.5)),
        )
        for number in range(NUM_JOBS)
    ]
    seconds = sum(best_hosts(job) * job.work / job.rate(best_hosts(job)) for job in jobs)
    horizon = seconds / (load * POLICY.max_machines)
    arrivals = sorted(draw.uniform(0.0, horizon) for _ in jobs)
    for job, arrival in zip(jobs, arrivals, strict=True):
        job.arrival, job.left = arrival, job.work
        job.noise = random.Random(f"{seed} {job.number}")
    return jobs


def price(job: SimulatedJob, hosts: int) -> float:
    """Return the price of a job in US dollars that has a number of machines all the time."""
    return (hosts * MACHINE + WAITING) * job.work / job.rate(hosts) / 3600.0


def best_hosts(job: SimulatedJob) -> int:
    """Return the number of machines with which a job is the cheapest."""
    choices = [1 << step for step in range(job.max_hosts.bit_length())]
    return min(choices, key=lambda hosts: price(job, hosts))


class OurMachines:
    """The machines of one simulation: booting, idle, or with a job; and what they have cost."""

    def __init__(self) -> None:
        self.booting: list[float] = []
        self.idle: list[float] = []
        self.seconds = 0.0

    def advance(self, now: float, until: float, busy: int) -> None:
        """Count what the machines cost between two times; machines that have booted are idle."""
        self.seconds += (until - now) * (busy + len(self.booting) + len(self.idle))
        ready = [at for at in self.booting if at <= until + 1e-6]
        self.booting = [at for at in self.booting if at > until + 1e-6]
        self.idle = sorted([*self.idle, *ready])

    def next_event(self) -> float:
        """Return the time at which a machine has booted, or has been idle for long enough."""
        expiry = self.idle[0] + POLICY.idle_seconds if self.idle else math.inf
        return min([expiry, *self.booting])

    def order(self, wanted: int, busy: int, now: float) -> None:
        """Request machines that are missing, and release those that were idle for long enough."""
        total = busy + len(self.booting) + len(self.idle)
        self.booting += [now + POLICY.boot_seconds] * max(0, wanted - total)
        while self.idle and self.idle[0] + POLICY.idle_seconds <= now + 1e-6 and total > wanted:
            self.idle.pop(0)
            total -= 1
        if self.idle and self.idle[0] + POLICY.idle_seconds <= now + 1e-6:
            self.idle = sorted(max(at, now) for at in self.idle)  # they are wanted


def simulate_ours(jobs: list[SimulatedJob]) -> float:
    """Return the cost of the scaling in US dollars."""
    machines, now, live, coming = OurMachines(), 0.0, [], list(jobs)
    while live or coming:
        arrival = coming[0].arrival if coming else math.inf
        until = min([arrival, machines.next_event(), *(job.next_event(now) for job in live)])
        machines.advance(now, until, sum(job.hosts for job in live))
        for job in live:
            job.advance(now, until)
            if job.left <= 1e-6 * job.work and job.hosts:
                job.ended = until
                machines.idle += [until] * job.hosts
        now = until
        live = [job for job in live if job.ended == math.inf]
        while coming and coming[0].arrival <= now:
            live.append(coming.pop(0))
        assign(live, machines, now)
    waiting = sum(job.ended - job.arrival for job in jobs)
    return (machines.seconds * MACHINE + waiting * WAITING) / 3600.0


def assign(live: list[SimulatedJob], machines: OurMachines, now: float) -> None:
    """Carry a plan of the scaling out, as far as machines are ready."""
    plan = scale(
        [
            ScalingJob(number=job.number, max_hosts=job.max_hosts, hosts=job.hosts, rates=job.rates)
            for job in live
        ],
        POLICY,
    )
    for job in live:
        target = plan.hosts[job.number]
        if 0 < target < job.hosts:
            machines.idle += [now] * (job.hosts - target)
            job.change(target, now)
    for is_waiting in (True, False):
        for job in live:
            more = plan.hosts[job.number] - job.hosts
            if (job.hosts == 0) == is_waiting and 0 < more <= len(machines.idle):
                del machines.idle[len(machines.idle) - more :]
                job.change(job.hosts + more, now)
    machines.order(plan.machines, sum(job.hosts for job in live), now)


def simulate_fifo(jobs: list[SimulatedJob], num_machines: int) -> float:
    """Return the cost of a fixed number of machines in US dollars."""
    free_at = [0.0] * num_machines
    start, waiting, busy = 0.0, 0.0, 0.0
    for job in jobs:
        free_at.sort()
        start = max(start, job.arrival, free_at[job.max_hosts - 1])
        length = job.work / job.rate(job.max_hosts)
        free_at[: job.max_hosts] = [start + length] * job.max_hosts
        waiting += start + length - job.arrival
        busy += length * job.max_hosts
    horizon = jobs[-1].arrival
    late = sum(max(0.0, at - horizon) for at in free_at)
    return ((horizon * num_machines + late) * MACHINE + waiting * WAITING) / 3600.0


def measure(load: float, seed: int) -> dict:
    """Return the costs of one load and seed, relative to the oracle's."""
    oracle = sum(price(job, best_hosts(job)) for job in random_jobs(load, seed))
    fifo = min(
        (simulate_fifo(random_jobs(load, seed), number), number)
        for number in range(8, 2 * POLICY.max_machines + 1, 4)
    )
    ours = simulate_ours(random_jobs(load, seed))
    return {
        "load": load,
        "seed": seed,
        "oracle": oracle,
        "ours": ours / oracle,
        "fifo": fifo[0] / oracle,
        "fifo_machines": fifo[1],
        "distance": (ours - oracle) / (fifo[0] - oracle),
    }


def main() -> int:
    """Print the costs; return 1 if the worst of them misses a bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print all measurements")
    options = parser.parse_args()
    rows = [measure(load, seed) for load in LOADS for seed in range(options.seeds)]
    if options.json:
        print(json.dumps(rows, indent=2))
    for load in LOADS:
        found = [row for row in rows if row["load"] == load]
        worst = max(found, key=lambda row: row["ours"])
        mean = sum(row["ours"] for row in found) / len(found)
        print(
            f"load {load:.0%}: cost of ours {mean:.3f} of the oracle's on average, at worst"
            f" {worst['ours']:.3f} (seed {worst['seed']}, where fifo has {worst['fifo']:.3f});"
            f" largest share of fifo's distance {max(row['distance'] for row in found):.2f}"
        )
    cost, distance = (max(row[key] for row in rows) for key in ("ours", "distance"))
    return int(cost > COST_BAR or distance > DISTANCE_BAR)


if __name__ == "__main__":
    sys.exit(main())
