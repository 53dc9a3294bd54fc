"""Kill the daemon of the queue at random moments, and before and after each of its steps.

Jobs of random shapes run on 8 simulated GPUs. Each job writes its start, its end and its GPUs into
a log of its own, which the queue does not read. At the end nothing may be lost or have run twice,
and no GPU may have been overbooked at any time. A job that made room for another one is started
again, and goes on from its checkpoint; it must not have run twice at the same time, nor be cut off.

    python tests/soak/queue_kills.py --jobs 1000 --kills 50 --seed 1
    python tests/soak/queue_kills.py --jobs 0 --points --lines 500

The offline packing is list scheduling with full knowledge: the lengths are exact, the largest jobs
(GPUs times seconds) come first, each starts as soon as it fits, and nothing takes any time beside
the jobs. The other bound is the area: the GPU seconds of all jobs, divided by 8; nothing can be
faster. The daemon knows lengths that are up to twice too long, and starts jobs in the order of the
queue. It is forked from this program, so that a new one need not import Python modules.
"""

from __future__ import annotations

import argparse
import collections
import heapq
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from slipstream.cluster.outside import num_outside_calls
from slipstream.cluster.queue import (
    JobQueue,
    JobSubmission,
    MachinePool,
    QueueDaemon,
    QueueGpu,
    QueueMachine,
    QueueStore,
    ResourceRequest,
)
from slipstream.cluster.queue.capacity import FreeCapacity
from slipstream.cluster.queue.daemon import process_runner
from slipstream.cluster.queue.folders import fifo_path
from slipstream.cluster.queue.shim import poke

NUM_GPUS = 8
GPU_MIB = 80 * 1024
JOB = Path(__file__).with_name("queue_job.py")
LIMIT_SECONDS = 120.0
PACKAGE = str(Path(sys.modules[QueueDaemon.__module__].__file__).parent)
BAR = 0.9


class QueueKillError(Exception):
    """A job was lost or ran twice, or a GPU was overbooked."""


def machine() -> QueueMachine:
    """Return the simulated machine."""
    gpu = QueueGpu(kind="simulated", memory_mib=GPU_MIB)
    return QueueMachine(name="host", gpus=(gpu,) * NUM_GPUS, cpus=256)


class Queue:
    """A queue with a log, and its daemon."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.store = QueueStore(home)
        self.jobs = JobQueue(self.store)
        MachinePool(self.store).set_machine(machine())
        self.log = home / "log"
        self.lengths: dict[int, float] = {}
        self.requests: dict[int, ResourceRequest] = {}
        self.daemon = 0

    def submit(self, length: float, request: ResourceRequest, **others: object) -> int:
        """Submit a job of a length in seconds; return its number."""
        number = len(self.lengths) + 1
        checkpoint = self.home / f"checkpoint-{number}"
        arguments = (JOB, number, length, self.log, checkpoint)
        command = (sys.executable, "-I", "-S", *map(str, arguments))
        submission = JobSubmission(command=command, cwd="/", request=request, **others)
        if self.jobs.submit(submission) != number:
            raise QueueKillError("the numbers of jobs are not consecutive")
        self.lengths[number], self.requests[number] = length, request
        return number

    def start_daemon(self, stop_at: str = "", line: int = -1) -> None:
        """Fork a daemon.

        Args:
            stop_at: Outside call at which it kills itself, such as "before:3" (default "": none).
            line: Index of the line at which it kills itself, in the order in which lines are
                reached first (default -1: none).
        """
        self.store.close()
        self.daemon = os.fork()
        if self.daemon:
            return
        moment, _, number = stop_at.partition(":")
        if number:  # this process has made calls before
            os.environ["SLIPSTREAM_STOP_AT"] = f"{moment}:{num_outside_calls() + int(number)}"
        if line >= 0:
            kill_at_line(line)
        daemon = QueueDaemon(QueueStore(self.home), process_runner(self.home))
        daemon.serve(lambda: False)

    def kill_daemon(self) -> None:
        """Kill the daemon with SIGKILL."""
        if self.daemon:
            os.kill(self.daemon, signal.SIGKILL)
            os.waitpid(self.daemon, 0)
        self.daemon = 0

    def daemon_died(self) -> bool:
        """Return whether the daemon has killed itself; another end is an error."""
        ended, status = os.waitpid(self.daemon, os.WNOHANG)
        if not ended:
            return False
        self.daemon = 0
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            raise QueueKillError(f"the daemon ended with status {status}")
        return True

    def num_live(self) -> int:
        """Return the number of jobs that have not ended."""
        with self.store.transaction() as session:
            query = "SELECT count(*) FROM jobs WHERE ended_at IS NULL"
            return session.connection().exec_driver_sql(query).scalar_one()


def kill_at_line(index: int) -> None:
    """Kill this process at a line of the queue's modules, before it is executed."""
    seen: set[tuple[str, int]] = set()

    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
            if len(seen) > index:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def read_log(log: Path) -> list[list[str]]:
    """Return the lines of the jobs' log: what, job, time, GPUs, memory."""
    return [line.split(" ") for line in log.read_text().splitlines()] if log.exists() else []


def check_log(queue: Queue) -> float:
    """Check what the jobs wrote down; return the time from the first start to the last end."""
    lines = read_log(queue.log)
    spans: dict[int, list[tuple[float, float]]] = collections.defaultdict(list)
    open_since: dict[int, float] = {}
    for what, job, at, *_ in lines:
        number, second = int(job), float(at)
        if (what == "start") == (number in open_since):
            raise QueueKillError(f"job {number} ran twice at the same time, or ended twice")
        if what == "start":
            open_since[number] = second
        else:
            spans[number].append((open_since.pop(number), second))
    check_overbooking(lines, queue.requests)
    for job in queue.jobs.jobs(ended=True):
        restarts = sum(event.kind == "requeue" for event in queue.jobs.events(job.number))
        if job.state == "cancelled":
            continue
        if job.state != "succeeded" or len(spans[job.number]) != restarts + 1:
            raise QueueKillError(f"job {job.number} is {job.state}, and ran {spans[job.number]}")
        ran = sum(end - start for start, end in spans[job.number])
        if ran < queue.lengths[job.number] - 0.01:
            raise QueueKillError(f"job {job.number} ran {ran} s of {queue.lengths[job.number]}")
    times = [float(line[2]) for line in lines]
    return max(times) - min(times)


def check_overbooking(lines: list[list[str]], requests: dict[int, ResourceRequest]) -> None:
    """Check that jobs got what they asked for, and that no GPU had less memory than its jobs."""
    used = [0] * NUM_GPUS
    for what, job, _, gpus, memory in lines:
        mib = GPU_MIB if memory == "whole" else int(memory)
        numbers = [int(number) for number in gpus.split(",") if number]
        request = requests[int(job)]
        if (len(numbers), mib) != (request.gpus, request.gpu_memory_mib or GPU_MIB):
            raise QueueKillError(f"job {job} asked for {request} and got {gpus} with {memory}")
        for number in numbers:
            used[number] += mib if what == "start" else -mib
            if used[number] > GPU_MIB:
                raise QueueKillError(f"GPU {number} was overbooked when job {job} started")


def random_job(draw: random.Random, mean_seconds: float) -> tuple[float, ResourceRequest]:
    """Return a length and a shape: shares of a GPU, one GPU, and several."""
    length = min(draw.lognormvariate(-0.5, 1.0), 8.0) * mean_seconds
    gpus = draw.choices((1, 2, 4, 8), (70, 20, 8, 2))[0]
    share = draw.choice((0, 0, 8, 20, 40)) * 1024 if gpus == 1 else 0
    return length, ResourceRequest(gpus=gpus, gpu_memory_mib=share)


def gpu_seconds(queue: Queue) -> float:
    """Return the GPU seconds of all jobs."""
    return (
        sum(
            length
            * queue.requests[number].gpus
            * (queue.requests[number].gpu_memory_mib or GPU_MIB)
            for number, length in queue.lengths.items()
        )
        / GPU_MIB
    )


def offline_packing(queue: Queue) -> float:
    """Return the seconds of list scheduling with full knowledge, largest jobs first."""
    jobs = [(length, queue.requests[number]) for number, length in queue.lengths.items()]
    jobs.sort(key=lambda job: -job[0] * job[1].gpus * (job[1].gpu_memory_mib or GPU_MIB))
    free, now, ends = FreeCapacity.of([machine()]), 0.0, []
    while jobs or ends:
        rest, failed = [], set()
        for order, (length, request) in enumerate(jobs):
            allocation = None if request.key in failed else free.place(request, 1)
            if allocation is None:
                failed.add(request.key)
                rest.append((length, request))
                continue
            free.take(allocation)
            heapq.heappush(ends, (now + length, len(jobs), order, allocation))
        jobs = rest
        now, _, _, allocation = heapq.heappop(ends)
        free.give(allocation)
    return now


def run_random(folder: Path, num_jobs: int, kills: int, mean_seconds: float, seed: int) -> dict:
    """Run random jobs, and kill the daemon at random moments; return the measurements."""
    draw = random.Random(seed)
    queue = Queue(folder)
    for _ in range(num_jobs):
        length, request = random_job(draw, mean_seconds)
        urgent = draw.random() < 0.02
        queue.submit(
            length,
            request,
            expected_seconds=length * draw.uniform(1.0, 2.0),
            preemptible=not urgent and draw.random() < 0.1,
            held=urgent,
            priority=int(urgent),
        )
    urgent = [job.number for job in queue.jobs.jobs() if job.state == "held"]
    packing, area = offline_packing(queue), gpu_seconds(queue) / NUM_GPUS
    print(f"{num_jobs} jobs, area {area:.1f} s, offline packing {packing:.1f} s", flush=True)
    start = time.monotonic()
    # Nothing ends before the packing does, so all kills come while jobs run.
    kill_times = sorted(start + draw.uniform(0.0, packing) for _ in range(kills))
    step = 0.9 * packing / (len(urgent) + 1)
    num_kills, next_urgent = 0, start + step
    queue.start_daemon()
    while live := queue.num_live():
        now = time.monotonic()
        if urgent and now > next_urgent:
            queue.jobs.release(urgent.pop())
            poke(str(fifo_path(folder)))
            next_urgent = now + step
        if num_kills < kills and now > kill_times[num_kills]:
            queue.kill_daemon()
            queue.start_daemon()
            num_kills += 1
            if num_kills % 10 == 0:
                print(f"{num_kills} kills, {live} jobs left", flush=True)
        time.sleep(min(0.2, packing / (4 * kills + 4)))
    queue.kill_daemon()
    took = check_log(queue)
    restarts = sum(job.num_attempts - 1 for job in queue.jobs.jobs(ended=True))
    queue.store.close()
    return {
        "jobs": num_jobs,
        "kills": num_kills,
        "restarts_from_a_checkpoint": restarts,
        "area_seconds": area,
        "packing_seconds": packing,
        "seconds": took,
        "utilisation": area / took,
        "share_of_packing": packing / took,
    }


def run_scenario(folder: Path, stop_at: str = "", line: int = -1) -> bool:
    """Run five jobs: one makes room, one is cancelled; return whether the daemon killed itself."""
    queue = Queue(folder)
    low = queue.submit(0.4, ResourceRequest(gpus=8), preemptible=True)
    high = queue.submit(0.05, ResourceRequest(gpus=1), priority=1, held=True)
    queue.submit(0.05, ResourceRequest(gpus=1, gpu_memory_mib=1024))
    queue.submit(0.05, ResourceRequest(gpus=1, gpu_memory_mib=GPU_MIB - 1024))
    gone = queue.submit(60.0, ResourceRequest(gpus=2))
    queue.start_daemon(stop_at, line)
    was_killed = False
    deadline = time.monotonic() + LIMIT_SECONDS
    while queue.num_live():
        if time.monotonic() > deadline:
            raise QueueKillError(f"jobs do not end: {queue.jobs.jobs()}")
        if not was_killed and queue.daemon_died():
            was_killed = True
            queue.start_daemon()
        started = {line[1] for line in read_log(queue.log) if line[0] == "start"}
        if str(low) in started and queue.jobs.job(high).state == "held":
            queue.jobs.release(high)
            poke(str(fifo_path(folder)))
        if str(gone) in started and queue.jobs.job(gone).state == "running":
            queue.jobs.cancel(gone)
            poke(str(fifo_path(folder)))
        time.sleep(0.01)
    queue.kill_daemon()
    check_log(queue)
    queue.store.close()
    return was_killed


def run_points(base: Path, every: int) -> int:
    """Kill the daemon before and after each of its calls to the outside, or some of them.

    Args:
        base: Folder for the queues.
        every: Number of calls from one kill to the next; 1 for all calls.

    Returns:
        Number of calls.
    """
    number = 0
    for moment in ("before", "after"):
        number, killed = 0, True
        while killed:
            killed = run_scenario(base / f"{moment}-{number}", f"{moment}:{number}")
            number += every * killed
        print(f"killed {moment} calls and transactions up to the {number}th", flush=True)
    return number


def run_lines(base: Path, most: int) -> int:
    """Kill the daemon at lines of its code; return how many there were."""
    number = 0
    while number < most and run_scenario(base / f"line-{number}", line=number):
        number += 1
        if number % 50 == 0:
            print(f"killed at {number} lines", flush=True)
    print(f"killed at each of the first {number} lines that the daemon reaches", flush=True)
    return number


def main() -> int:
    """Run the command line; return 1 if a job was lost or the GPUs were used badly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=50, help="kills at random moments")
    parser.add_argument("--mean", type=float, default=7.0, help="mean length of jobs in seconds")
    parser.add_argument("--points", action="store_true", help="kill at each transaction and call")
    parser.add_argument("--every", type=int, default=1, help="kill at every so many of them")
    parser.add_argument("--lines", type=int, default=0, help="kill at each of so many lines")
    parser.add_argument("--bar", type=float, default=BAR, help="least share of the packing")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    result: dict = {"seed": options.seed}
    with tempfile.TemporaryDirectory(prefix="slipstream-queue-") as name:
        base = Path(name)
        try:
            if options.points:
                result["points"] = run_points(base, options.every)
            if options.lines:
                result["lines"] = run_lines(base, options.lines)
            if options.jobs:
                shape = (options.jobs, options.kills, options.mean, options.seed)
                result |= run_random(base / "random", *shape)
        except QueueKillError as error:
            print(f"FAILED with seed {options.seed}: {error}", file=sys.stderr)
            return 1
    print(json.dumps(result, indent=2))
    return int(result.get("share_of_packing", 1.0) < options.bar)


if __name__ == "__main__":
    sys.exit(main())
