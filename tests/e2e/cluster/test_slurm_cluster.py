"""The Slurm on which tests of the cluster run starts jobs again, and notices a lost node."""

from __future__ import annotations

from pathlib import Path

import pytest
from host_boot import HOME
from slurm_cluster import SlurmCluster
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("unshare", "nsenter", "setpriv"),
    pytest.mark.launcher("sshd", "sbatch", "slurmctld", "slurmd", "munged"),
    pytest.mark.multiprocess,
]

SCRIPT = """#!/bin/sh
echo start ${SLURM_RESTART_COUNT:-0} $(id -un) $SLURM_JOB_NODELIST
srun hostname
sleep ${1:-0}
"""


def submitted(slurm: SlurmCluster, seconds: int) -> tuple[str, Path]:
    """Submit a job on both nodes, and return its number and the file of its output."""
    slurm.hosts.desk.write(f"{HOME}/job.sh", SCRIPT)
    to = ("--output", "/shared/%j.out", "--open-mode=append")
    number = slurm.submit("--nodes=2", *to, "job.sh", str(seconds))
    return number, slurm.hosts.shared["/shared"] / f"{number}.out"


def wait_for_start(out: Path, start: int) -> None:
    """Wait until the job has been started so many times before, and both nodes run it."""
    begin = f"start {start} trainer host[1-2]\n"
    wait_until(lambda: out.exists() and len(out.read_text().partition(begin)[2].splitlines()) >= 2)


def test_a_job_runs_on_both_nodes_as_the_user(slurm: SlurmCluster) -> None:
    number, out = submitted(slurm, 0)
    slurm.wait_for(number, "COMPLETED")
    first, *others = out.read_text().splitlines()
    assert (first, sorted(others)) == ("start 0 trainer host[1-2]", ["host1", "host2"])
    assert [host.processes() for host in slurm.hosts.by_name.values()] == [{}, {}, {}]


@pytest.mark.slow("cluster of Slurm")
def test_a_requeued_job_starts_again(slurm: SlurmCluster) -> None:
    number, out = submitted(slurm, 999)
    wait_for_start(out, 0)
    slurm.hosts.desk.output("scontrol", "requeue", number)
    wait_for_start(out, 1)
    assert slurm.job(number)["Restarts"] == "1"
    assert "999" in " ".join(slurm.nodes[0].processes().values())


@pytest.mark.slow("cluster of Slurm", represents=False)
def test_a_job_waits_for_the_return_of_a_lost_node(slurm: SlurmCluster) -> None:
    number, out = submitted(slurm, 999)
    wait_for_start(out, 0)
    slurm.nodes[0].kill()
    wait_until(lambda: slurm.node_states()[0].startswith("down"))
    wait_until(lambda: not slurm.nodes[1].processes())
    slurm.nodes[0].boot()
    wait_for_start(out, 1)
    assert slurm.job(number)["Restarts"] == "1"
