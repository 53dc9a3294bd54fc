"""Clients of a run that are many, are cut off from its hosts, or leave early."""

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_hosts import Hosts, open_hosts
from run_jobs import HOME, PYTHON, SLIPSTREAM, left_behind, write_job
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync"),
    pytest.mark.multiprocess,
]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Yield a desk and two hosts behind ssh."""
    with open_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        hosts.start(2)
        yield hosts


def cut(hosts: Hosts, name: str) -> tuple[str, ...]:
    """Cut the way from the desk to a host; return the command that mends it."""
    route = ("blackhole", f"{hosts[name].address}/32")
    hosts.desk.output("ip", "route", "add", *route, user="root")
    return ("ip", "route", "del", *route)


def status(hosts: Hosts, name: str) -> dict[str, Any]:
    return json.loads(hosts.desk.output(SLIPSTREAM, "cluster", "status", name, "--json"))


@pytest.mark.slow("two clients of a run")
def test_two_clients_see_each_line_once_and_keep_it_once(hosts: Hosts) -> None:
    desk = hosts.desk
    command = "sh -c 'for i in $(seq 200); do echo line $i; sleep 0.05; done'"
    write_job(desk, "both", command, ssh={"hosts": ["host1"]})
    log, other = desk.write(f"{HOME}/log", ""), desk.write(f"{HOME}/other", "")
    first = desk.start(SLIPSTREAM, "run", "both/both.yaml", log=log)
    wait_until(lambda: "line 3\n" in log.read_text())
    second = desk.start(SLIPSTREAM, "cluster", "attach", "both", log=other)
    wait_until(lambda: "line 100\n" in other.read_text())
    first.kill()
    assert second.process.wait(60) == 0, other.read_text()
    shown = [line for line in other.read_text().splitlines() if " line " in line]
    assert shown[-1].endswith("line 200")
    assert len(set(shown)) == len(shown)
    kept = desk.output(SLIPSTREAM, "cluster", "logs", "both").splitlines()
    assert sum("line " in line for line in kept) == 200
    assert status(hosts, "both")["state"] == "succeeded"


@pytest.mark.slow("client that is cut off")
def test_a_head_that_the_other_host_hears_is_not_moved(hosts: Hosts) -> None:
    desk = hosts.desk
    write_job(desk, "way", "steps.py 500 0.1", hosts=2, ssh={"hosts": ["host1", "host2"]})
    log = desk.write(f"{HOME}/log", "")
    client = desk.start(SLIPSTREAM, "run", "way/way.yaml", log=log)
    wait_until(lambda: "[host2:1] step 5\n" in log.read_text())
    mend = cut(hosts, "host1")
    try:
        time.sleep(40)  # another head would be started after 20 s
    finally:
        desk.output(*mend, user="root")
    assert client.process.wait(100) == 0, log.read_text()
    assert "another head" not in log.read_text()
    assert "[host2:1] step 499\n" in log.read_text()


@pytest.mark.slow("client that is cut off")
def test_a_client_that_reaches_no_host_leaves_the_run_to_a_later_one(hosts: Hosts) -> None:
    desk = hosts.desk
    retry = {"lost": "25s"}
    write_job(desk, "away", "steps.py 500 0.1", ssh={"hosts": ["host1"]}, retry=retry)
    log = desk.write(f"{HOME}/log", "")
    client = desk.start(SLIPSTREAM, "run", "away/away.yaml", log=log)
    wait_until(lambda: "step 5\n" in log.read_text())
    mend = cut(hosts, "host1")
    try:
        assert client.process.wait(100) == 1
    finally:
        desk.output(*mend, user="root")
    assert "slipstream cluster attach away" in log.read_text().splitlines()[-1]
    assert status(hosts, "away")["state"] == "running"
    done = desk.run(SLIPSTREAM, "cluster", "attach", "away")
    assert done.returncode == 0, done.stderr
    assert "step 499\n" in done.stdout
    wait_until(lambda: not left_behind(hosts["host1"]))


@pytest.mark.slow("client that ends a run")
def test_a_run_whose_head_is_dead_ends_without_a_new_start(hosts: Hosts) -> None:
    desk, host = hosts.desk, hosts["host1"]
    write_job(desk, "headless", "steps.py 1000 0.1", ssh={"hosts": ["host1"]})
    done = desk.run(SLIPSTREAM, "run", "headless/headless.yaml", "--detach")
    assert done.returncode == 0, done.stderr
    heads = [pid for pid, line in host.processes().items() if "cluster.head /" in line]
    for pid in heads:
        os.kill(pid, signal.SIGKILL)
    assert heads
    down = desk.run(SLIPSTREAM, "cluster", "down", "headless")
    assert down.returncode == 0, down.stderr
    assert "another head" not in down.stderr
    assert status(hosts, "headless")["state"] == "cancelled"
    wait_until(lambda: not left_behind(host))


@pytest.mark.slow("client that ends a run")
def test_ctrl_c_before_the_start_gives_the_run_up(hosts: Hosts) -> None:
    desk = hosts.desk
    software = {"python": str(PYTHON), "environment": "existing", "setup": "sleep 15"}
    write_job(desk, "early", "steps.py 10 0.1", ssh={"hosts": ["host1"]}, software=software)
    log = desk.write(f"{HOME}/log", "")
    client = desk.start(SLIPSTREAM, "run", "early/early.yaml", log=log)
    wait_until(lambda: any("sleep 15" in line for line in hosts["host1"].processes().values()))
    os.kill(client.pid, signal.SIGINT)
    assert client.process.wait(60) == 130, log.read_text()
    assert "the run is given up" in log.read_text()
    assert status(hosts, "early")["state"] == "cancelled"


@pytest.mark.slow("bad host of a run")
def test_a_host_on_which_failures_begin_is_replaced_by_a_spare(hosts: Hosts) -> None:
    write_job(
        hosts.desk,
        "bad",
        "sh -c 'test $(hostname) = host2'",
        ssh={"hosts": ["host1", "host2"]},
        retry={"max_restarts": 4, "backoff": [0.1, 0.1]},
    )
    done = hosts.desk.run(SLIPSTREAM, "run", "bad/bad.yaml")
    assert done.returncode == 0, done.stderr
    assert "host1 is not used for 3600 s" in done.stderr


def test_the_only_host_is_used_again_though_failures_begin_there(hosts: Hosts) -> None:
    write_job(
        hosts.desk,
        "only",
        "sh -c 'exit 3'",
        ssh={"hosts": ["host1"]},
        retry={"max_restarts": 3, "backoff": [0.1, 0.1], "host_wait": "1s"},
    )
    done = hosts.desk.run(SLIPSTREAM, "run", "only/only.yaml")
    assert done.returncode == 3
    assert "started again 3 times, as often as allowed" in done.stderr
