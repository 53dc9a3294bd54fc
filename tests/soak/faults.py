"""Measure how much training is lost if a fault hits a job of 8 ranks every 30 seconds.

    sudo python tests/soak/faults.py --minutes 30 --every 30 --seed 1

`slipstream run --min 2 --max 8` starts two ranks on each of four hosts, which are network
namespaces of this machine; `ssh` to them is a script that enters the namespace. In turn, a process
is killed, a process is stopped for some seconds, and a host's link is cut for some seconds; the
killed process is replaced by the launcher. The job trains without faults before and after them.

The result is the number of applied samples a second and living rank, over the number without
faults. A rank lives unless its process is gone, stopped, or behind a cut link; the successor of a
killed process lives from when it has imported its modules.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.lab import Lab, LabSpec

RANK = Path(__file__).with_name("faults_rank.py")
HOSTS, RANKS_PER_HOST = 4, 2
RANKS = HOSTS * RANKS_PER_HOST
BAR = 0.90
LIMIT_SECONDS = 180.0  # for the start, and until all ranks are back, on a machine that is busy
SSH = """#!/bin/sh
while [ "$1" != "--" ]; do shift; done
exec ip netns exec "$(cat {folder}/$2.namespace)" sh -c "$3"
"""


class FaultError(Exception):
    """The job did not survive as it should."""


class RankLog:
    """What one process has written: its epochs and its completed steps."""

    def __init__(self, path: Path) -> None:
        self.pid = int(path.stem)
        self.up = 0.0
        self.host = ""
        self.epoch = (0, 0, 0)  # number, rank, size
        self.steps: list[tuple[float, int, int, int]] = []  # time, epoch, number, size
        self.end: list[str] = []
        self._path = path
        self._read = 0

    def look(self) -> None:
        """Read what is new."""
        with self._path.open() as file:
            file.seek(self._read)
            text = file.read()
        text = text[: text.rfind("\n") + 1]
        self._read += len(text)
        for line in text.splitlines():
            at, kind, *words = line.split()
            if kind == "up":
                self.up = float(at)
            elif kind == "in":
                self.epoch = (int(words[0]), int(words[1]), int(words[2]))
                self.host = words[3]
            elif kind == "step":
                epoch, number, size = (int(word) for word in words)
                self.steps.append((float(at), epoch, number, size))
            else:
                self.end = words

    @property
    def lives(self) -> bool:
        """Whether the process exists."""
        return Path(f"/proc/{self.pid}").exists()


@dataclass(kw_only=True)
class Fault:
    """A fault, its victims, and when it began and ended."""

    kind: str
    victims: list[int]
    begin: float
    end: float = 0.0
    whole: float = 0.0  # when all ranks trained together again


class Job:
    """The job and what its ranks write."""

    def __init__(self, lab: Lab, folder: Path, step_seconds: float) -> None:
        self._lab = lab
        self._folder = folder
        self._step_seconds = step_seconds
        self.logs: dict[int, RankLog] = {}
        self.output = folder / "output"

    def start(self) -> None:
        """Start the launcher, which finds the script `ssh` in its path."""
        ssh = self._folder / "ssh"
        ssh.write_text(SSH.format(folder=self._folder))
        ssh.chmod(0o755)
        for address, namespace in zip(self._lab.addresses, self._lab.namespaces, strict=False):
            (self._folder / f"{address}.namespace").write_text(namespace)
        hosts = ",".join(f"{address}:{RANKS_PER_HOST}" for address in self._lab.addresses)
        command = [
            *(sys.executable, "-m", "slipstream.cli", "run", "--min", "2", "--max", str(RANKS)),
            *("-H", hosts, "--python", sys.executable, "--grace", "10s"),
            *(str(RANK), str(self._folder), str(self._step_seconds)),
        ]
        path = f"{self._folder}:{os.environ['PATH']}"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command, env={**os.environ, "PATH": path}, stdout=output, stderr=output
            )

    def look(self) -> None:
        """Read all logs.

        Raises:
            FaultError: the launcher has ended.
        """
        for path in self._folder.glob("*.log"):
            self.logs.setdefault(int(path.stem), RankLog(path)).look()
        if self.process.poll() is not None and not (self._folder / "stop").exists():
            raise FaultError(f"the launcher has ended:\n{self.tail()}")

    def tail(self) -> str:
        """Return the last output of the job."""
        return "\n".join(self.output.read_text().splitlines()[-25:])

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Read the logs until a condition holds; return False if the time is over first."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
            self.look()
        return True

    def watch(self, seconds: float) -> None:
        """Read the logs for a while."""
        self.wait(lambda: False, seconds)

    def is_whole(self) -> bool:
        """Return whether all ranks are in one epoch, and have made a step in it."""
        living = [log for log in self.logs.values() if log.lives and log.steps]
        newest = max((log.epoch[0] for log in living), default=0)
        in_it = [log for log in living if log.steps[-1][1] == newest == log.epoch[0]]
        return len(in_it) == RANKS and all(log.epoch[2] == RANKS for log in in_it)

    def await_whole(self) -> None:
        """Wait until all ranks train together.

        Raises:
            FaultError: this takes too long.
        """
        self.look()
        if not self.wait(self.is_whole, LIMIT_SECONDS):
            raise FaultError(f"not all ranks came together:\n{self.tail()}")

    def members(self) -> list[RankLog]:
        """Return the processes of the newest epoch that live, by rank."""
        living = [log for log in self.logs.values() if log.lives and log.epoch[2]]
        newest = max(log.epoch[0] for log in living)
        return sorted(
            (log for log in living if log.epoch[0] == newest), key=lambda log: log.epoch[1]
        )

    def finish(self) -> None:
        """Let the training end, and check that all ranks have the same result.

        Raises:
            FaultError: they have not, or the job ends with an error.
        """
        (self._folder / "stop").touch()
        try:
            code = self.process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise FaultError(f"the job does not end:\n{self.tail()}") from None
        self.look()
        ends = {tuple(log.end) for log in self.logs.values() if log.end}
        if code != 0 or len(ends) != 1:
            raise FaultError(f"the job ended with {code}, results {ends}:\n{self.tail()}")
        applied = sum(size for _, size in self.applied_steps())
        if (samples := int(ends.pop()[1])) != applied * 8:
            raise FaultError(f"{samples} samples were counted, and {applied * 8} were applied")

    def kill(self) -> None:
        """End what is left of the job."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for log in self.logs.values():
            if log.lives and not log.end:
                os.kill(log.pid, signal.SIGKILL)

    def applied_steps(self) -> list[tuple[float, int]]:
        """Return time and number of ranks of each step that was not repeated later."""
        done: dict[int, tuple[int, float, int]] = {}
        for log in self.logs.values():
            for at, epoch, number, size in log.steps:
                best = done.get(number)
                if best is None or epoch > best[0] or (epoch == best[0] and at < best[1]):
                    done[number] = (epoch, at, size)
        return [(at, size) for _, at, size in done.values()]


class Faults:
    """The faults that hit a job, one after the other."""

    def __init__(self, lab: Lab, job: Job, options: argparse.Namespace) -> None:
        self._lab = lab
        self._job = job
        self._draw = random.Random(options.seed)
        self._seconds = options.fault_seconds
        self.all: list[Fault] = []

    def hit(self, kind: str) -> None:
        """Let one fault begin and end; the job may not be whole yet afterwards."""
        members = self._job.members()
        victim = members[0] if self._draw.random() < 0.2 else self._draw.choice(members)
        seconds = self._draw.uniform(*self._seconds)
        victims = [victim]
        if kind == "partition":
            victims = [log for log in members if log.host == victim.host]
        fault = Fault(kind=kind, victims=[log.pid for log in victims], begin=time.time())
        self.all.append(fault)
        if kind == "kill":
            os.kill(victim.pid, signal.SIGKILL)
            fault.end = self._await_successor(victim, fault.begin)
        elif kind == "stop":
            os.kill(victim.pid, signal.SIGSTOP)
            self._job.watch(seconds)
            os.kill(victim.pid, signal.SIGCONT)
            fault.end = time.time()
        else:
            host = self._lab.addresses.index(victim.host)
            self._lab.cut(host)
            self._job.watch(seconds)
            self._lab.mend(host)
            fault.end = time.time()

    def _await_successor(self, victim: RankLog, begin: float) -> float:
        """Return when a new process is ready to train in place of a killed one."""
        known = set(self._job.logs)

        def successors() -> list[RankLog]:
            return [log for pid, log in self._job.logs.items() if pid not in known and log.up]

        if not self._job.wait(lambda: bool(successors()), LIMIT_SECONDS):
            raise FaultError(f"process {victim.pid} was not replaced:\n{self._job.tail()}")
        return successors()[0].up

    def lost_rank_seconds(self, begin: float, end: float) -> float:
        """Return the time of a period in which ranks did not live, summed over ranks."""
        return sum(
            len(fault.victims) * max(0.0, min(fault.end, end) - max(fault.begin, begin))
            for fault in self.all
        )


def rate(job: Job, begin: float, end: float, rank_seconds: float) -> float:
    """Return the applied steps of ranks in a period, a second and living rank."""
    return sum(size for at, size in job.applied_steps() if begin <= at < end) / rank_seconds


def calm(job: Job, seconds: float) -> tuple[float, float]:
    """Train for a while without faults; return the period."""
    job.await_whole()
    begin = time.time()
    job.watch(seconds)
    return begin, time.time()


def disturb(job: Job, faults: Faults, options: argparse.Namespace) -> tuple[float, float]:
    """Let faults hit the job; return the period from the first one to the end of the last one's."""
    begin = time.time()
    count = max(1, round(options.minutes * 60 / options.every))
    kinds: Iterator[str] = itertools.cycle(("kill", "stop", "partition"))
    for number, kind in zip(range(count), kinds, strict=False):
        faults.hit(kind)
        due = begin + (number + 1) * options.every
        if job.wait(job.is_whole, max(0.0, due - time.time())):
            faults.all[-1].whole = time.time()
        job.watch(max(0.0, due - time.time()))
        print(f"\r{number + 1} of {count} faults", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return begin, time.time()


def explain(job: Job, faults: Faults, normal: float, end: float) -> list[dict[str, Any]]:
    """Return for each fault how long nothing was applied, and the seconds of the job it cost."""
    begins = [fault.begin for fault in faults.all] + [end]
    applied = sorted(job.applied_steps())
    rows: list[dict[str, Any]] = []
    for fault, until in zip(faults.all, begins[1:], strict=True):
        times = [fault.begin, *(at for at, _ in applied if fault.begin <= at < until), until]
        gaps = sorted((b - a for a, b in itertools.pairwise(times)), reverse=True)
        whole = RANKS * (until - fault.begin) - faults.lost_rank_seconds(fault.begin, until)
        got = sum(size for at, size in applied if fault.begin <= at < until)
        rows.append(
            {
                "kind": fault.kind,
                "longest_gaps": [round(gap, 2) for gap in gaps[:3]],
                "fault_seconds": round(fault.end - fault.begin, 2),
                "whole_after": round(fault.whole - fault.begin, 2) if fault.whole else None,
                "lost_seconds": round((whole - got / normal) / RANKS, 2),
                "share": round(got / normal / whole, 3),
            }
        )
    return rows


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run the job with its faults; return what was measured."""
    with (
        tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder,
        Lab(LabSpec(hosts=HOSTS)) as lab,
    ):
        job = Job(lab, Path(folder), options.step_seconds)
        faults = Faults(lab, job, options)
        try:
            job.start()
            first = calm(job, options.calm)
            period = disturb(job, faults, options)
            last = calm(job, options.calm)
            job.finish()
        finally:
            job.kill()
        normal = [rate(job, *each, RANKS * (each[1] - each[0])) for each in (first, last)]
        lost = faults.lost_rank_seconds(*period)
        disturbed = rate(job, *period, RANKS * (period[1] - period[0]) - lost)
        mean = sum(normal) / 2
        return {
            "seed": options.seed,
            "faults": len(faults.all),
            "steps_a_second_without_faults": [round(each, 3) for each in normal],
            "steps_a_second_with_faults": round(disturbed, 3),
            "share": round(disturbed / mean, 4),
            "of_each": explain(job, faults, mean, period[1]),
        }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="time with faults (30)")
    parser.add_argument("--every", type=float, default=30.0, help="seconds between faults (30)")
    parser.add_argument("--calm", type=float, default=60.0, help="seconds before and after (60)")
    parser.add_argument(
        "--fault-seconds",
        type=float,
        nargs=2,
        default=[4.0, 8.0],
        help="shortest and longest stop and partition (4 8)",
    )
    parser.add_argument("--step-seconds", type=float, default=0.1, help="computation (0.1)")
    parser.add_argument("--bar", type=float, default=BAR, help=f"least share ({BAR})")
    parser.add_argument("--seed", type=int, default=1, help="seed of the victims (1)")
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    try:
        result = run(options)
    except FaultError as error:
        sys.exit(f"faults.py with seed {options.seed}: {error}")
    print(json.dumps(result, indent=2))
    if result["share"] < options.bar:
        sys.exit(f"faults.py with seed {options.seed}: {result['share']} is under {options.bar}")


if __name__ == "__main__":
    main()
