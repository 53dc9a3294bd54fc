"""`slipstream doctor -H` on hosts with sshd and networks of their own."""

import json
import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_hosts import NOWHERE, Hosts
from host import Host
from run_jobs import PYTHON, SLIPSTREAM, left_behind
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen"),
    pytest.mark.multiprocess,
]

LOADER = "sys.stdin.read(int("  # of the measuring program's command line

# Opens the shared connection to host1, which the doctor uses then.
OPEN_CONNECTION = """
from slipstream.cluster.engines.ssh_host import SshHost
SshHost(name="host1", login="host1").run("true", what="connecting")
"""


def examined(hosts: Hosts, listed: str, code: int) -> dict[str, Any]:
    """Return what the doctor says of hosts, as JSON, after checks of what it must always do."""
    done = hosts.desk.run(SLIPSTREAM, "doctor", "-H", listed, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_good_hosts_have_nothing_to_mend_and_keep_nothing(hosts: Hosts) -> None:
    found = examined(hosts, "host1,host2", 0)
    assert [host["error"] for host in found["hosts"]] == ["", ""]
    assert {(pair["source"], pair["target"]) for pair in found["pairs"]} == {
        ("host1", "host2"),
        ("host2", "host1"),
    }
    for pair in found["pairs"]:
        assert pair["state"] == "open"
        assert 0 < pair["latency"] < 1
        assert pair["bandwidth"] > 1e6
        assert pair["mtu"] == 1500
    for name in ("host1", "host2"):
        wait_until(lambda name=name: not left_behind(hosts[name]))


@pytest.mark.slow("hosts in pairs")
def test_a_blocked_pair_is_found(hosts: Hosts) -> None:
    host1 = hosts["host1"]
    route = ("ip", "route", "add", "prohibit", f"{hosts['host2'].address}/32")
    host1.output(*route, user="root")
    try:
        found = examined(hosts, "host1,host2", 1)
    finally:
        host1.output("ip", "route", "del", *route[3:], user="root")
    states = {pair["source"]: pair["state"] for pair in found["pairs"]}
    assert states["host1"] == "unreachable"
    assert found["problems"][0]["stops_jobs"]
    assert "mend the route" in found["problems"][0]["remedy"]


@contextmanager
def shaped(host: Host, *shape: str) -> Generator[None]:
    """Shape what a host sends."""
    route = host.output("ip", "-o", "route", "get", NOWHERE)
    device = ("dev", route.split(" dev ")[1].split()[0])
    host.output("tc", "qdisc", "add", *device, "root", "tbf", *shape, user="root")
    try:
        yield
    finally:
        host.output("tc", "qdisc", "del", *device, "root", user="root")


def test_a_slow_direction_is_found(hosts: Hosts) -> None:
    with shaped(hosts["host2"], "rate", "50mbit", "burst", "64kb", "latency", "50ms"):
        found = examined(hosts, "host1,host2", 0)
    speeds = {pair["source"]: pair["bandwidth"] * 8e-6 for pair in found["pairs"]}
    assert 20 < speeds["host2"] < 60
    assert speeds["host1"] > 2 * speeds["host2"]
    (problem,) = found["problems"]
    assert problem["where"] == "host2 to host1"
    assert not problem["stops_jobs"]


@pytest.mark.slow("hosts in pairs")
def test_large_packets_that_get_lost_are_told_from_a_firewall(hosts: Hosts) -> None:
    # Packets above the size of the bucket are dropped, also those of ssh's key exchange.
    host1 = hosts["host1"]
    hosts.desk.output(PYTHON, "-c", OPEN_CONNECTION)
    with shaped(host1, "rate", "1gbit", "burst", "1400", "latency", "50ms"):
        found = examined(hosts, "host1,host2", 1)
    states = {pair["source"]: pair["state"] for pair in found["pairs"]}
    assert states == {"host1": "small only", "host2": "open"}
    assert "MTU" in found["problems"][0]["remedy"]


def test_a_host_without_ssh_is_named_with_the_reason(hosts: Hosts) -> None:
    done = hosts.desk.run(SLIPSTREAM, "doctor", "-H", "host1,nowhere")
    assert done.returncode == 1
    assert "no connection" in done.stdout
    assert "1. nowhere: nowhere cannot be reached: " in done.stdout


@pytest.mark.slow("hosts in pairs")
def test_a_host_that_is_lost_while_it_is_measured_is_named(hosts: Hosts, tmp_path: Path) -> None:
    (lost,) = hosts.start(1)
    listed = f"host1,host2,{lost.name}"
    log = tmp_path / "log"
    client = hosts.desk.start(SLIPSTREAM, "doctor", "-H", listed, "--json", log=log)
    wait_until(lambda: any(LOADER in line for line in lost.processes().values()))
    for pid, line in lost.processes().items():
        if LOADER in line:
            os.kill(pid, signal.SIGKILL)
    assert client.process.wait(120) == 1, log.read_text()
    found = json.loads(log.read_text())
    assert {problem["where"] for problem in found["problems"]} & {
        lost.name,
        f"host1 to {lost.name}",
    }
    assert any({pair["source"], pair["target"]} == {"host1", "host2"} for pair in found["pairs"])


@pytest.mark.parametrize("other", [("--algorithms",), ("--route-to", "a")])
def test_options_about_this_host_are_refused_with_other_hosts(other: tuple[str, ...]) -> None:
    done = subprocess.run(
        [SLIPSTREAM, "doctor", "-H", "a,b", *other], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"{other[0]} is about this host" in done.stderr


def test_a_host_that_refuses_the_key_is_told_from_one_that_is_away(hosts: Hosts) -> None:
    hosts.trust(hosts["host2"], key=False)
    try:
        found = examined(hosts, "host1,host2", 1)
    finally:
        hosts.trust(hosts["host2"])
    assert "accepts no key of yours" in found["problems"][0]["text"]
    assert not found["hosts"][0]["error"]
    assert not found["pairs"]


@pytest.mark.slow("hosts in pairs")
def test_a_wrong_clock_is_found_with_its_uncertainty(hosts: Hosts) -> None:
    (late,) = hosts.start(1, clock_seconds=300.0)
    found = examined(hosts, f"host1,{late.name}", 1)
    (problem,) = [problem for problem in found["problems"] if "clock" in problem["text"]]
    assert problem["where"] == late.name
    assert problem["stops_jobs"]
    assert "+300." in problem["text"] or "+299.9" in problem["text"]
