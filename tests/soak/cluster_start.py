"""Measures the time from `slipstream run job.yaml` to the first training step on 4 ssh hosts.

    python tests/soak/cluster_start.py --wheels FOLDER

The hosts are namespaces of this machine with a file system, processes and an sshd of their own, so
they share its processors. First they are fresh: the environment with PyTorch is installed on each
from the wheels, which are brought along. Then they are ready: files are synced, the environment is
cached. It prints the seconds of each stage, and writes JSON.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cluster_hosts import Hosts, open_hosts

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests/e2e/cluster/programs/first_step.py"
SLIPSTREAM = ROOT / ".venv/bin/slipstream"
HOME = "/home/trainer"
LIMIT_SECONDS = 900.0


def main() -> None:
    """Run the job three times on the same hosts, and print the stages of each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=4, help="number of hosts")
    parser.add_argument("--wheels", type=Path, required=True, help="folder of wheels with PyTorch")
    parser.add_argument("--output", type=Path, default=Path("build/cluster-start.json"))
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        open_hosts(Path(folder)) as hosts,
    ):
        hosts.start(arguments.hosts)
        write_job(hosts, arguments.hosts, arguments.wheels)
        results = {name: measure(hosts, name) for name in ("fresh", "ready", "ready again")}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    for name, stages in results.items():
        print(name, *(f"{stage} {seconds:.1f} s" for stage, seconds in stages.items()), sep="  ")


def write_job(hosts: Hosts, count: int, wheels: Path) -> None:
    """Write the job and the wheels on the desk."""
    desk = hosts.desk
    desk.write(f"{HOME}/job/first_step.py", PROGRAM.read_text())
    for wheel in wheels.glob("*.whl"):
        desk.path(f"{HOME}/job/wheels").mkdir(exist_ok=True)
        desk.path(f"{HOME}/job/wheels/{wheel.name}").write_bytes(wheel.read_bytes())
    job = {
        "command": "first_step.py",
        "on": "ssh",
        "hosts": count,
        "processes": 1,
        "code": {"exclude": ["wheels", "*.yaml"]},
        "software": {
            "python": str(Path(sys.base_prefix) / "bin/python3"),
            "wheels": "wheels",
            "frameworks": {"torch": "2.13"},
        },
        "ssh": {"hosts": [f"host{number}" for number in range(1, count + 1)]},
    }
    desk.write(f"{HOME}/job/job.yaml", json.dumps(job))


def measure(hosts: Hosts, name: str) -> dict[str, float]:
    """Run the job; return the seconds of each stage, and those to the first step."""
    began_at = time.time()
    done = hosts.desk.run(
        SLIPSTREAM, "run", "job/job.yaml", "--json", "--set", f"name={name.replace(' ', '-')}",
        seconds=LIMIT_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    events: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    stages: dict[str, float] = {}
    for event in events:
        if event["event"] == "stage" and event["seconds"] is not None:
            stages[event["name"]] = max(stages.get(event["name"], 0.0), event["seconds"])
    first = min(event["time"] for event in events if event.get("text") == "step 0 done")
    return {**stages, "first step": first - began_at}


if __name__ == "__main__":
    main()
