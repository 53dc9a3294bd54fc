"""`slipstream queue autoscale`: moto makes machines, which are hosts that boot and run the jobs."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_hosts import Hosts
from host import Program
from machine_room import MachineRoom, open_machine_room
from moto_server import IMAGE, INSTANCE_TYPE, SERVER
from run_jobs import HOME, SLIPSTREAM, write_job
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync"),
    pytest.mark.multiprocess,
    pytest.mark.skipif(not SERVER.exists(), reason="moto's server is not installed"),
]

UP = ("--on", "aws", "--type", INSTANCE_TYPE, "--image", IMAGE, "--open-to", "10.91.0.1/32")
SECONDS = 150.0
# Outside calls at which daemons are killed: while the first machine is found, and another created.
KILLS = ("after:5", "before:9", "after:12")
# As on the machines of clouds, the first user may do everything.
SUDOERS = {"/etc/sudoers.d/machine": "ALL ALL=(ALL:ALL) NOPASSWD: ALL\n"}


@pytest.fixture(scope="module")
def room(hosts: Hosts) -> Iterator[MachineRoom]:
    """Yield a cloud whose machines are hosts."""
    with open_machine_room(hosts, image_files=SUDOERS) as room:
        yield room


def call(room: MachineRoom, *arguments: str) -> Any:
    """Call `slipstream` at the desk, and return what it prints as JSON."""
    done = room.hosts.desk.run(
        SLIPSTREAM, *arguments[:2], "--json", *arguments[2:], environ=room.environ, seconds=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextlib.contextmanager
def daemon(room: MachineRoom, stop: str = "") -> Iterator[Program]:
    """Run the daemon of the queue at the desk, and kill it at the end or at an outside call."""
    desk = room.hosts.desk
    log = desk.write(f"{HOME}/daemon.log", "")
    environ = {**room.environ, **({"SLIPSTREAM_STOP_AT": stop} if stop else {})}
    program = desk.start(SLIPSTREAM, "queue", "serve", environ=environ, log=log)
    wait_until(lambda: "serving the queue" in log.read_text())
    try:
        yield program
    except BaseException:
        print(log.read_text())
        raise
    finally:
        if program.process.poll() is None:
            program.kill()


def submit(room: MachineRoom, name: str, command: str, *options: str, **fields: Any) -> int:
    """Submit a job file; return its number."""
    write_job(room.hosts.desk, name, command, **{"on": "local", **fields})
    return call(room, "queue", "submit", *options, f"{name}/{name}.yaml")["job"]


def wait_for(room: MachineRoom, number: int, *states: str) -> dict[str, Any]:
    """Wait until a job has one of some states, and return it."""
    wait_until(lambda: call(room, "queue", "show", str(number))["state"] in states, SECONDS)
    return call(room, "queue", "show", str(number))


def deadline_of(room: MachineRoom, group: str) -> float:
    """Return the deadline of a group in seconds since 1970."""
    path = room.hosts.desk.path(f"{HOME}/.slipstream/groups/{group}/group.json")
    return json.loads(path.read_text())["request"]["deadline_at"]


@pytest.mark.slow("life of a group of machines")
def test_machines_come_when_a_job_needs_them_and_go_when_they_are_idle(room: MachineRoom) -> None:
    call(room, "cluster", "up", "pool", *UP, "--deadline", "20m", "--yes")
    chosen = ("--max-machines", "2", "--idle", "2s", "--lease", "1h", "--yes")
    scaled = call(room, "queue", "autoscale", "pool", *chosen)
    assert (scaled["machine_price"], scaled["machines"]) == (0.526, [])
    with daemon(room) as first:
        room.wait_for(0)  # the first machine was seen, and was idle
        assert deadline_of(room, "pool") > time.time() + 1800.0  # it was moved on
        number = submit(room, "wide", "steps.py 30 0.1", hosts=2)
        wait_until(lambda: room.running)
        first.kill()  # while machines are created
    with daemon(room):
        job = wait_for(room, number, "succeeded", "failed")
        assert job["state"] == "succeeded", job
        assert {share["machine"] for share in job["allocation"]} == {"task0.pool", "task1.pool"}
        room.wait_for(0)
    call(room, "queue", "autoscale", "--off")
    assert (
        room.hosts.desk.run(SLIPSTREAM, "cluster", "down", "pool", environ=room.environ).returncode
        == 0
    )
    report = call(room, "cluster", "gc", "--on", "aws")
    assert (report["doomed"], report["kept"], report["leaks"]) == ([], [], [])


@pytest.mark.slow("life of a group of machines", represents=False)
def test_a_job_that_scales_badly_is_tried_on_two_machines_and_goes_back(room: MachineRoom) -> None:
    call(room, "cluster", "up", "sized", *UP, "--yes")
    chosen = ("--max-machines", "2", "--settle", "1s", "--idle", "2s")
    call(room, "queue", "autoscale", "sized", *chosen, "--yes")
    with daemon(room):
        number = submit(room, "elastic", "sized.py", "--preemptible", hosts="1:2")
        seen: list[int] = []

        def has_gone_back() -> bool:
            job = call(room, "queue", "show", str(number))
            count = len(job["allocation"])
            if job["state"] == "running" and seen[-1:] != [count]:
                seen.append(count)
            return seen == [1, 2, 1]

        wait_until(has_gone_back, SECONDS)
        job = call(room, "queue", "show", str(number))
        assert "on 2 each machine has 55% of the speed" in job["scaling"]
        room.wait_for(1)
        call(room, "queue", "cancel", str(number))
        wait_for(room, number, "cancelled")
    kinds = [event["kind"] for event in call(room, "queue", "events", str(number))]
    assert kinds.count("resize") == 2
    call(room, "queue", "autoscale", "--off")
    done = room.hosts.desk.run(SLIPSTREAM, "cluster", "down", "sized", environ=room.environ)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow("life of a group of machines", represents=False)
def test_daemons_that_are_killed_while_they_scale_leave_nothing_behind(room: MachineRoom) -> None:
    call(room, "cluster", "up", "killed", *UP, "--yes")
    chosen = ("--max-machines", "2", "--idle", "2s", "--yes")
    call(room, "queue", "autoscale", "killed", *chosen)
    number = submit(room, "often", "steps.py 20 0.1", hosts=2)
    for stop in KILLS:
        with daemon(room, stop) as program:
            program.process.wait(SECONDS)
    with daemon(room):
        job = wait_for(room, number, "succeeded", "failed")
        assert (job["state"], job["num_attempts"]) == ("succeeded", 1), job
        room.wait_for(0)
    assert call(room, "queue", "machines") == []
    call(room, "queue", "autoscale", "--off")
    done = room.hosts.desk.run(SLIPSTREAM, "cluster", "down", "killed", environ=room.environ)
    assert done.returncode == 0, done.stderr
    report = call(room, "cluster", "gc", "--on", "aws")
    assert (report["doomed"], report["kept"], report["leaks"]) == ([], [], [])
