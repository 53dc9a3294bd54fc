"""`slipstream run job.yaml --on aws`: moto is the cloud, hosts with sshd are its machines."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_hosts import open_hosts
from forecast_plans import forecast_text, rented_plan
from machine_room import CLOUD_FIELDS, MachineRoom, open_machine_room
from moto_server import INSTANCE_TYPE
from run_jobs import HOME, PYTHON, SLIPSTREAM, write_job
from waiting import wait_until

METADATA = Path(__file__).parents[2] / "plugins/spot_metadata.py"

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync"),
    pytest.mark.multiprocess,
    pytest.mark.slow("a job on machines of a cloud"),
]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineRoom]:
    """Yield a cloud whose machines are hosts."""
    with (
        open_hosts(tmp_path_factory.mktemp("hosts")) as hosts,
        open_machine_room(hosts) as room,
    ):
        yield room


def write_cloud_job(desk: Any, name: str, command: str, **fields: Any) -> None:
    """Write a job for machines of the cloud."""
    chosen = {"on": "aws", "cloud": CLOUD_FIELDS, "deadline": "10m", **fields}
    write_job(desk, name, command, **chosen)


def test_machines_are_made_run_the_job_and_are_given_back(room: MachineRoom) -> None:
    desk = room.hosts.desk
    write_cloud_job(desk, "rented", "steps.py 5 0.1", hosts=2, outputs=["result.txt"])
    asked = desk.run(SLIPSTREAM, "run", "rented/rented.yaml", environ=room.environ)
    assert asked.returncode == 2
    assert "2 x " in asked.stderr
    assert "allow it with --yes" in asked.stderr
    assert room.running == []
    done = desk.run(SLIPSTREAM, "run", "rented/rented.yaml", "--yes", environ=room.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step 4\n") == 2
    assert desk.path(f"{HOME}/rented/result.txt").exists()
    assert room.wait_for(0) == []
    events = json.loads(desk.output(SLIPSTREAM, "cluster", "events", "rented", "--json"))
    stages = [event["facts"]["stage"] for event in events if event["kind"] == "stage"]
    assert stages[:2] == ["machines", "boot"]


def test_a_machine_that_is_taken_away_is_replaced(room: MachineRoom) -> None:
    desk = room.hosts.desk
    retry = {"host_wait": "60s"}
    write_cloud_job(desk, "spot", "steps.py 150 0.1", hosts=2, retry=retry)
    log = desk.write(f"{HOME}/log", "")
    argv = (SLIPSTREAM, "run", "spot/spot.yaml", "--yes")
    client = desk.start(*argv, environ=room.environ, log=log)
    wait_until(lambda: log.read_text().count("step 5\n") == 2)
    before = set(room.by_id)
    lost = next(number for number, host in room.by_id.items() if "task1" in label(host, log))
    room.by_id[lost].kill()
    wait_until(lambda: set(room.by_id) - before, 100)
    assert client.process.wait(200) == 0, log.read_text()
    assert "takes the place of a lost host" in log.read_text()
    assert log.read_text().count("step 149\n") == 2
    assert room.wait_for(0) == []


def announce(host: Any, seconds: float) -> None:
    """Let the metadata service of a machine tell that it is taken away after some seconds."""
    # This machine alone must see it, so no other one gets an answer to its ARP request.
    ignore = "/proc/sys/net/ipv4/conf/eth0/arp_ignore"
    host.output("sh", "-c", f"echo 1 > {ignore}", user="root")
    host.output("ip", "address", "add", "169.254.169.254/32", "dev", "lo", user="root")
    host.start(PYTHON, METADATA, str(seconds), user="root")


def machine_of(room: MachineRoom, log: Path, name: str) -> str:
    """Return the identifier of the machine that has a name in the run."""
    return next(number for number, host in room.by_id.items() if name in label(host, log))


def test_a_notice_ends_the_attempt_and_another_machine_comes(room: MachineRoom) -> None:
    desk = room.hosts.desk
    cloud = {**CLOUD_FIELDS, "spot": True}
    write_cloud_job(desk, "notice", "steps.py 150 0.1", hosts=2, cloud=cloud)
    log = desk.write(f"{HOME}/log", "")
    argv = (SLIPSTREAM, "run", "notice/notice.yaml", "--yes")
    client = desk.start(*argv, environ=room.environ, log=log)
    wait_until(lambda: log.read_text().count("step 5\n") == 2)
    leaving = machine_of(room, log, "task1")
    announce(room.by_id[leaving], 600)
    wait_until(lambda: leaving not in room.by_id, 100)
    assert client.process.wait(200) == 0, log.read_text()
    text = log.read_text()
    assert "the cloud takes task1.notice" in text
    assert "takes the place of a lost host" in text
    assert text.count("step 149\n") == 2
    starts = [line for line in text.splitlines() if "start at step" in line]
    assert not starts[-1].endswith("start at step 0 with 2 ranks"), "it goes on where it was"
    assert room.wait_for(0) == []


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("with_notice", [True, False])
def test_the_machine_of_the_head_is_taken_away(
    room: MachineRoom, hosts: int, with_notice: bool
) -> None:
    desk = room.hosts.desk
    cloud = {**CLOUD_FIELDS, "spot": True}
    name = f"head-{hosts}-{with_notice}".lower()
    fields = {"hosts": hosts, "cloud": cloud, "grace": "2s"}
    write_cloud_job(desk, name, "steps.py 200 0.1", **fields)
    log = desk.write(f"{HOME}/log", "")
    argv = (SLIPSTREAM, "run", f"{name}/{name}.yaml", "--yes")
    client = desk.start(*argv, environ=room.environ, log=log)
    wait_until(lambda: log.read_text().count("step 5\n") == hosts)
    leaving = machine_of(room, log, "task0")
    if with_notice:
        announce(room.by_id[leaving], 25)
    else:
        room.take_away(leaving)
    wait_until(lambda: leaving not in room.by_id, 100)
    assert client.process.wait(200) == 0, log.read_text()
    text = log.read_text()
    assert "another head is started" in text
    assert text.count("step 199\n") == hosts
    assert room.wait_for(0) == []


def test_all_machines_are_taken_away_at_the_same_time(room: MachineRoom) -> None:
    desk = room.hosts.desk
    write_cloud_job(desk, "all", "steps.py 30 0.1", hosts=2)
    log = desk.write(f"{HOME}/log", "")
    argv = (SLIPSTREAM, "run", "all/all.yaml", "--yes")
    client = desk.start(*argv, environ=room.environ, log=log)
    wait_until(lambda: log.read_text().count("step 5\n") == 2)
    before = set(room.by_id)
    for number in before:
        room.take_away(number)
    wait_until(lambda: not before & set(room.by_id), 100)
    assert client.process.wait(200) == 0, log.read_text()
    assert log.read_text().count("step 29\n") == 2
    assert room.wait_for(0) == []


def label(host: Any, log: Path) -> str:
    """Return the name of a machine in the run, by the placement that it was given."""
    del log
    found = list(host.path(f"{HOME}/.slipstream/runs").glob("*/daemon.log"))
    return found[0].read_text() if found else ""


def test_a_client_that_dies_leaves_machines_that_end_at_the_deadline(room: MachineRoom) -> None:
    desk = room.hosts.desk
    write_cloud_job(desk, "left", "steps.py 10000 0.1", hosts=1, deadline="60s")
    log = desk.write(f"{HOME}/log", "")
    argv = (SLIPSTREAM, "run", "left/left.yaml", "--yes")
    client = desk.start(*argv, environ=room.environ, log=log)
    wait_until(lambda: "step 5\n" in log.read_text())
    client.kill()
    room.wait_for(1)
    wait_until(lambda: not room.running, 100)


def test_a_plan_chooses_machines_and_bounds_their_cost(room: MachineRoom) -> None:
    desk = room.hosts.desk
    plan = rented_plan(
        processes=1, gpus=0, gpu="", instance_type=INSTANCE_TYPE, dollars_per_hour=2.0,
        hardware=f"2 x aws {INSTANCE_TYPE}", setup={"hosts": 2, "batch": 64, "network": "10g"},
    )  # fmt: skip
    image_and_access = {name: CLOUD_FIELDS[name] for name in ("image", "open_to")}
    write_job(desk, "planned", "told_rate.py 160 2", cloud=image_and_access)
    path = desk.path(f"{HOME}/planned/planned.yaml")
    fields = json.loads(path.read_text())
    del fields["on"], fields["processes"]
    path.write_text(json.dumps(fields))
    desk.write(f"{HOME}/plans.json", forecast_text(plan))
    argv = (SLIPSTREAM, "run", "--plan", "plans.json", "planned/planned.yaml")
    asked = desk.run(*argv, environ=room.environ)
    assert asked.returncode == 2
    assert f"machines {INSTANCE_TYPE}, cost cap 12.00 $" in asked.stderr
    assert f"2 x {INSTANCE_TYPE}" in asked.stderr
    assert "allow it with --yes" in asked.stderr
    assert room.running == []
    done = desk.run(*argv, "--yes", environ=room.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" of 2: ") == 2
    assert room.wait_for(0) == []
    status = desk.output(SLIPSTREAM, "cluster", "status", "planned")
    assert "training: forecast 1 h, took" in status
    assert "cost: forecast 4.00 $, took" in status
    assert desk.path(f"{HOME}/.slipstream/observations.jsonl").exists()
