"""Loses spot hosts at random steps of trainings, 50 times.

    python tests/soak/spot_losses.py --losses 50 --each 5

A job runs on 3 of 4 ssh hosts with `slipstream run job.yaml`. At a random step, one of its hosts,
that of the head included, loses its power; a spare host takes its place, and the lost one boots
again and is the next spare. Each job must end, with the accuracy of a job without losses, and no
epoch may begin twice.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / "plugins")]

from cluster_hosts import Hosts, open_hosts  # noqa: E402
from run_jobs import HOME, SLIPSTREAM, write_job  # noqa: E402
from waiting import wait_until  # noqa: E402

PROGRAM = Path(__file__).parent / "spot_training.py"
EPOCHS, BATCH, SECONDS = 12, 100, 0.25
STEPS = EPOCHS * 2000 // BATCH
LIMIT_SECONDS = 300.0
MOST_POINTS = 0.3
KEEP_EVERY = 5  # steps, in spot_training.py
NAMES = ("host1", "host2", "host3", "host4")


def main() -> None:
    """Run jobs until enough hosts were lost; print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--losses", type=int, default=50, help="number of lost hosts in all")
    parser.add_argument("--each", type=int, default=5, help="number of lost hosts of each job")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    draws = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        shared = Path(folder) / "shared"
        shared.mkdir()
        with open_hosts(Path(folder) / "hosts", {"/shared": shared}) as hosts:
            hosts.start(len(NAMES))
            best = Job(hosts, shared, 0).run([])
            print(f"without losses: accuracy {best:.4f}", flush=True)
            for number in range(1, arguments.losses // arguments.each + 1):
                steps = sorted(draws.sample(range(5, STEPS - 40), arguments.each))
                job = Job(hosts, shared, number)
                accuracy = job.run([(step, draws.random()) for step in steps])
                print(f"job {number}: lost {', '.join(job.lost)}: {accuracy:.4f}", flush=True)
                assert abs(accuracy - best) * 100 <= MOST_POINTS, "the accuracy is another one"


class Job:
    """One training, with the hosts that it loses."""

    def __init__(self, hosts: Hosts, shared: Path, number: int) -> None:
        self.hosts, self.name = hosts, f"spot-{number}"
        self.lost: list[str] = []
        self.told = shared / "told.jsonl"
        for name in ("state.npz", "told.jsonl"):
            (shared / name).unlink(missing_ok=True)
        hosts.desk.write(f"{HOME}/{self.name}/spot_training.py", PROGRAM.read_text())
        write_job(
            hosts.desk,
            self.name,
            f"spot_training.py {EPOCHS} {BATCH} {SECONDS} /shared",
            hosts="1:3",
            retry={"scope": "worker", "host_wait": "5s"},
            ssh={"hosts": list(NAMES)},
        )

    def run(self, losses: list[tuple[int, float]]) -> float:
        """Run the job, and switch a host off at each of these steps; return the accuracy."""
        try:
            return self._run(losses)
        except AssertionError:
            for host in (self.hosts.desk, *self.hosts.by_name.values()):
                for path in sorted(host.path(HOME).glob("**/*.log")):
                    tail = "".join(path.read_text().splitlines(keepends=True)[-40:])
                    print(f"---- {host.name} {path}, lost {self.lost}\n{tail}", flush=True)
            raise

    def _run(self, losses: list[tuple[int, float]]) -> float:
        log = self.hosts.desk.write(f"{HOME}/{self.name}.log", "")
        argv = (SLIPSTREAM, "run", f"{self.name}/{self.name}.yaml", "--json")
        client = self.hosts.desk.start(*argv, log=log)

        def entries(name: str) -> list[Any]:
            return [fields[name] for fields in read_lines(self.told) if name in fields]

        for step, draw in losses:
            wait_until(lambda step=step: max(entries("step"), default=0) >= step, LIMIT_SECONDS)
            self.lose(log, draw)
            newest = max(entries("step"))
            wait_until(lambda newest=newest: max(entries("step")) > newest + 3, LIMIT_SECONDS)
            self.hosts[self.lost[-1]].boot()
        assert client.process.wait(LIMIT_SECONDS) == 0, log.read_text()[-3000:]
        assert set(entries("begins")) == set(range(EPOCHS))
        for epoch, steps in run_again(self.told):
            assert steps <= KEEP_EVERY, f"epoch {epoch} began again after {steps} steps"
        return float(entries("accuracy")[0])

    def lose(self, log: Path, draw: float) -> None:
        """Switch off a host that takes part."""
        there: dict[str, bool] = {}
        for line in log.read_text().splitlines():
            if '"event": "host"' in line:
                entry = json.loads(line)
                there[entry["name"]] = entry["is_there"]
        names = sorted(name for name, is_there in there.items() if is_there)
        names = [name for name in names if self.hosts[name].power is not None]
        self.lost.append(names[int(draw * len(names))])
        self.hosts[self.lost[-1]].kill()


def read_lines(told: Path) -> list[dict[str, Any]]:
    """Return what rank 0 has told; a host that lost its power has perhaps cut a line."""
    text = told.read_text() if told.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def run_again(told: Path) -> list[tuple[int, int]]:
    """Return the epochs that began again, and how many of their steps were done before."""
    seen: set[int] = set()
    again: list[tuple[int, int]] = []
    newest = 0
    for fields in read_lines(told):
        newest = max(newest, fields.get("step", 0))
        if fields.get("begins") in seen:
            epoch = fields["begins"]
            again.append((epoch, newest - epoch * (2000 // BATCH)))
        seen.add(fields.get("begins", -1))
    return again


if __name__ == "__main__":
    main()
