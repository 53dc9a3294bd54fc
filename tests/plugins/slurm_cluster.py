"""A real Slurm on hosts of a test: its controller at the desk, and a node on each further host."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from cluster_hosts import Hosts
from host import Host
from host_boot import USER
from waiting import wait_until

SOCKET = "/run/munge/munge.socket.2"
MUNGED = f"sh -c 'mkdir -p {Path(SOCKET).parent} && exec munged --foreground --force'"
# A daemon of Slurm ends at once if munge does not answer yet.
DAEMON = f"sh -c 'until [ -S {SOCKET} ]; do sleep 0.05; done; exec {{}} -D'"
# Slurm waits 120 seconds (here 5, its least) before a requeued job starts again, and 300 (here 6,
# which makes about 18) before it gives up a node. Its schedulers run every 60 seconds (here 1).
CONFIGURATION = """
ClusterName=test
SlurmctldHost=desk
AuthType=auth/munge
AuthInfo=cred_expire=5
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
MpiDefault=none
MessageTimeout=5
SlurmdTimeout=6
KillWait=5
ReturnToService=2
JobRequeue=1
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@dataclass(frozen=True, kw_only=True)
class SlurmCluster:
    """Nodes that take jobs from the desk.

    Attributes:
        hosts: The desk and the nodes; all mount what they share.
        nodes: Hosts that run jobs, two CPUs each.
    """

    hosts: Hosts
    nodes: list[Host]

    def submit(self, *arguments: str | Path) -> str:
        """Submit a job at the desk, with arguments of sbatch, and return its number."""
        return self.hosts.desk.output("sbatch", "--parsable", *arguments).strip()

    def job(self, number: str) -> dict[str, str]:
        """Return what Slurm tells about a job: JobState, Restarts, BatchHost and so on."""
        told = self.hosts.desk.output("scontrol", "--oneliner", "show", "job", number)
        return dict(re.findall(r"(\S+?)=(\S*)", told))

    def wait_for(self, number: str, *states: str, seconds: float = 60.0) -> None:
        """Wait until a job is in one of the states."""
        wait_until(lambda: self.job(number)["JobState"] in states, seconds)

    def recover(self) -> None:
        """Cancel all jobs, boot the nodes that are off, and wait until all are idle."""
        self.hosts.desk.output("scancel", "--user", USER)
        for node in self.nodes:
            if node.power is None:
                node.boot()
        wait_until(lambda: self.node_states() == ["idle"] * len(self.nodes))

    def node_states(self) -> list[str]:
        """Return the states of the nodes, in the order of their names."""
        return self.hosts.desk.output("sinfo", "-h", "-N", "-o", "%T").split()


def start_slurm(hosts: Hosts, count: int = 2) -> SlurmCluster:
    """Start nodes on new hosts and the controller at the desk; return when the nodes are idle."""
    nodes = hosts.start(count)
    key = os.urandom(128)
    names = [f"NodeName={node.name} NodeAddr={node.address} CPUs=2" for node in nodes]
    for host in (hosts.desk, *nodes):
        install(host, CONFIGURATION.format(nodes="\n".join(names)), key)
    cluster = SlurmCluster(hosts=hosts, nodes=nodes)
    wait_until(lambda: cluster.node_states() == ["idle"] * count)
    hosts.desk.settle()  # the controller has started a process
    return cluster


def install(host: Host, text: str, key: bytes) -> None:
    """Give a host Slurm's files, and start its daemons."""
    is_desk = host.name == "desk"
    host.path("/etc/slurm").mkdir(exist_ok=True)
    host.path("/etc/slurm/slurm.conf").write_text(text)
    host.path("/etc/munge/munge.key").write_bytes(key)
    for name in ("spool/slurmctld", "spool/slurmd", "lib/munge", "log/munge"):
        host.path(f"/var/{name}").mkdir(parents=True)
    host.serve(MUNGED)
    host.serve(DAEMON.format("slurmctld" if is_desk else "slurmd"))
