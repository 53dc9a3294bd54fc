"""A real Ray on hosts of a test, with a job server that the desk reaches, and tokens."""

import json
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster_hosts import Hosts
from host import Host
from host_boot import HOME, USER
from waiting import wait_until

RAY = Path(sys.prefix) / "bin/ray"
GCS_PORT = 6379  # others may lie in the range of the workers' ports
JOB_PORT = 8265
START_SECONDS = 180.0  # all nodes start within 16 s if nothing else runs, on two cores
VARIABLES = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
# Ray gives up a silent node after 65 seconds by default, and after 13 with these values.
HEALTH = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
}
# Object stores as small as Ray allows.
NODE = (
    f"{RAY} start --block --num-cpus 2 --object-store-memory 80000000 --disable-usage-stats"
    " --include-log-monitor false --node-ip-address"
)


@dataclass(frozen=True, kw_only=True)
class RayCluster:
    """Nodes of two CPUs each; the first one has the job server.

    Attributes:
        hosts: The desk, which has the token, and the nodes.
        nodes: Hosts that run Ray.
    """

    hosts: Hosts
    nodes: list[Host]

    @property
    def environ(self) -> Mapping[str, str]:
        """Return the variables with which Ray's commands at the desk find the job server."""
        return {**VARIABLES, "RAY_ADDRESS": f"http://{self.nodes[0].name}:{JOB_PORT}"}

    def submit(self, *command: str | Path) -> str:
        """Run a job to its end, and return its output."""
        line = (RAY, "job", "submit", "--", *command)
        done = self.hosts.desk.run(*line, environ=self.environ, seconds=START_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def recover(self) -> None:
        """Boot the nodes that are off, and wait until all are alive."""
        for node in self.nodes:
            if node.power is None:
                node.boot()
        self.wait_for(len(self.nodes))

    def wait_for(self, count: int) -> None:
        """Wait until so many nodes are alive."""
        wait_until(lambda: self.alive() == count, START_SECONDS)

    def alive(self) -> int:
        """Return how many nodes are alive, as the first one knows; 0 before it answers."""
        program = (
            "import json, ray; ray.init(address='auto', logging_level='ERROR');"
            "print(json.dumps([node['Alive'] for node in ray.nodes()]))"
        )
        asked = self.nodes[0].run(sys.executable, "-c", program, environ=VARIABLES)
        return sum(json.loads(asked.stdout.splitlines()[-1])) if asked.returncode == 0 else 0


def start_ray(hosts: Hosts, count: int = 3) -> RayCluster:
    """Start Ray on new hosts; return when all are alive and the job server answers."""
    nodes = hosts.start(count)
    token = secrets.token_hex(32)
    for host in (hosts.desk, *nodes):
        host.write(f"{HOME}/.ray/auth_token", token, 0o600)
    head = nodes[0]
    serve(head, f"--head --port {GCS_PORT} --dashboard-host 0.0.0.0 --include-dashboard true")
    cluster = RayCluster(hosts=hosts, nodes=nodes)
    wait_until(lambda: can_connect(hosts.desk, head, GCS_PORT), START_SECONDS)
    for node in nodes[1:]:
        serve(node, f"--address {head.address}:{GCS_PORT}")
    wait_until(lambda: can_connect(hosts.desk, head, JOB_PORT), START_SECONDS)
    cluster.wait_for(count)
    for node in nodes:
        node.settle()
    return cluster


def serve(host: Host, options: str) -> None:
    """Start Ray as the ordinary user, now and whenever the host boots."""
    variables = " ".join(f"{name}={value}" for name, value in {**VARIABLES, **HEALTH}.items())
    as_user = f"runuser -u {USER} -- env -C {HOME} HOME={HOME} {variables}"
    host.serve(f"{as_user} {NODE} {host.address} {options}")


def can_connect(desk: Host, host: Host, port: int) -> bool:
    """Return whether the desk can connect to a port of a host."""
    line = f"exec 3<> /dev/tcp/{host.address}/{port}"
    return desk.run("bash", "-c", line).returncode == 0
