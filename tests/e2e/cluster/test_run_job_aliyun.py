"""`slipstream run job.yaml --on aliyun`: a fake is the cloud, hosts with sshd its machines."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_hosts import NETWORK, open_hosts
from host_boot import HOME
from listed_machines import AliyunStandIn
from machine_room import ADDRESS, MachineRoom, open_machine_room
from run_jobs import SLIPSTREAM, write_job
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync"),
    pytest.mark.multiprocess,
    pytest.mark.slow("a job on machines of a cloud"),
]

CLOUD = {"instance_type": "ecs.gn6i-c4g1.xlarge", "open_to": [f"{NETWORK}.1/32"]}


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineRoom]:
    """Yield the fake of Alibaba Cloud whose machines are hosts."""
    with (
        open_hosts(tmp_path_factory.mktemp("hosts")) as hosts,
        open_machine_room(hosts, AliyunStandIn(ADDRESS)) as room,
    ):
        yield room


def write_cloud_job(room: MachineRoom, name: str, command: str, **fields: Any) -> str:
    """Write a job for machines of the cloud; return its path."""
    chosen = {"on": "aliyun", "cloud": CLOUD, "deadline": "10m", **fields}
    write_job(room.hosts.desk, name, command, **chosen)
    return f"{name}/{name}.yaml"


def test_machines_are_made_run_the_job_and_are_given_back(room: MachineRoom) -> None:
    desk = room.hosts.desk
    job = write_cloud_job(room, "rented", "steps.py 5 0.1", hosts=2, outputs=["result.txt"])
    planned = desk.run(SLIPSTREAM, "run", job, "--dry-run", environ=room.environ)
    assert "it would create 2 x ecs.gn6i-c4g1.xlarge for" in planned.stderr
    asked = desk.run(SLIPSTREAM, "run", job, environ=room.environ)
    assert asked.returncode == 2
    assert "2 x ecs.gn6i-c4g1.xlarge" in asked.stderr
    assert room.running == []
    done = desk.run(SLIPSTREAM, "run", job, "--yes", environ=room.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step 4\n") == 2
    assert desk.path(f"{HOME}/rented/result.txt").exists()
    assert room.wait_for(0) == []
    left = desk.run(SLIPSTREAM, "cluster", "gc", "--on", "aliyun", environ=room.environ)
    assert left.returncode == 0, left.stderr
    events = json.loads(desk.output(SLIPSTREAM, "cluster", "events", "rented", "--json"))
    stages = [event["facts"]["stage"] for event in events if event["kind"] == "stage"]
    assert stages[:2] == ["machines", "boot"]


def test_a_machine_that_is_taken_away_is_replaced(room: MachineRoom) -> None:
    desk = room.hosts.desk
    cloud = {**CLOUD, "spot": True}
    retry = {"host_wait": "60s"}
    job = write_cloud_job(room, "spot", "steps.py 150 0.1", hosts=2, retry=retry, cloud=cloud)
    log = desk.write(f"{HOME}/log", "")
    client = desk.start(SLIPSTREAM, "run", job, "--yes", environ=room.environ, log=log)
    wait_until(lambda: log.read_text().count("step 5\n") == 2)
    before = set(room.by_id)
    lost = next(number for number, host in room.by_id.items() if "task1" in daemon_log(host))
    room.by_id[lost].kill()
    wait_until(lambda: set(room.by_id) - before, 100)
    assert client.process.wait(200) == 0, log.read_text()
    assert "takes the place of a lost host" in log.read_text()
    assert log.read_text().count("step 149\n") == 2
    assert room.wait_for(0) == []


def daemon_log(host: Any) -> str:
    """Return what the host daemon of a machine has written, which has its name in the run."""
    found = list(host.path(f"{HOME}/.slipstream/runs").glob("*/daemon.log"))
    return found[0].read_text() if found else ""


def test_a_client_that_dies_is_followed_by_the_next_one(room: MachineRoom) -> None:
    desk = room.hosts.desk
    job = write_cloud_job(room, "left", "steps.py 80 0.1", hosts=1)
    log = desk.write(f"{HOME}/log", "")
    client = desk.start(SLIPSTREAM, "run", job, "--yes", environ=room.environ, log=log)
    wait_until(lambda: "step 5\n" in log.read_text())
    client.kill()
    room.wait_for(1)
    done = desk.run(SLIPSTREAM, "cluster", "attach", "left", environ=room.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step 79\n") == 1
    assert room.wait_for(0) == []
