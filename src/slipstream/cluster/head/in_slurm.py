"""`python -m slipstream.cluster.head.in_slurm FOLDER JOB HOST...`: run a run in a job of Slurm.

The batch script calls this on its own node, which is the first of the named hosts. The host daemons
are the tasks of one step. The exit code is that of the job, or TAKEN_CODE if Slurm ends it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from slipstream.cluster.head.allocation import TAKEN_CODE, run_lent_head, with_head_here
from slipstream.cluster.head.journal import Journal
from slipstream.cluster.head.placement import ENDED, JOURNAL, read_placement

STEP_END_SECONDS = 30.0
ASK_SECONDS = 20.0


def run_in_slurm(folder: Path, job: str, hosts: Sequence[str]) -> int:
    """Run a run on the nodes of this job; return its exit code.

    Args:
        folder: Folder of the run, which all nodes see.
        job: Number of the job.
        hosts: Names of its nodes, of which the first one is this one.
    """
    if (folder / ENDED).exists():
        return 0
    names = tuple(dict.fromkeys(hosts))
    # Slurm may have given fewer nodes than the largest number; then nobody waits for the others.
    placement = replace(with_head_here(read_placement(folder), names), max_hosts=len(names))
    placement.write(folder)
    step = subprocess.Popen(_step(folder, len(placement.hosts)), stdin=subprocess.DEVNULL)
    code = run_lent_head(placement, folder, Journal(folder / JOURNAL))
    try:
        step.wait(STEP_END_SECONDS)
    except subprocess.TimeoutExpired:
        step.terminate()
        step.wait()
    if code == TAKEN_CODE and _still_runs(job):
        # The time limit comes near. A job that was cancelled is not running any more.
        subprocess.run(["scontrol", "requeue", job], check=False, timeout=ASK_SECONDS)
    return code


def _step(folder: Path, num_hosts: int) -> list[str]:
    daemon = shlex.join([sys.executable, "-m", "slipstream.cluster.head.daemon", str(folder)])
    return [
        "srun",
        f"--nodes={num_hosts}",
        f"--ntasks={num_hosts}",
        "--ntasks-per-node=1",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--cpu-bind=none",
        "--mpi=none",
        f"--output={folder}/daemon.%N.log",
        "sh",
        "-c",
        f'exec {daemon} "$SLURMD_NODENAME"',
    ]


def _still_runs(job: str) -> bool:
    asked = subprocess.run(
        ["squeue", "--noheader", "--format=%T", f"--jobs={job}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=ASK_SECONDS,
    )
    return asked.stdout.strip() == "RUNNING"


def main() -> None:
    """Run the run of the command line."""
    os.chdir("/")
    sys.exit(run_in_slurm(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))


if __name__ == "__main__":
    main()
