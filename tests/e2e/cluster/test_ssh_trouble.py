"""Hosts that a job cannot use: what the message says, that others are used, that nothing stays."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cluster_hosts import Hosts, open_hosts
from host import Host
from run_jobs import SLIPSTREAM, left_behind, write_job
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync"),
    pytest.mark.multiprocess,
]
MIB = 1 << 20


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Yield a desk, a good host, one with a small disk, and one whose clock is wrong."""
    with open_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        hosts.start(1)
        hosts.start(1, home_bytes=4 * MIB)
        hosts.start(1, clock_seconds=3600)
        yield hosts


def run(desk: Host, name: str, **fields: Any) -> "tuple[int, str]":
    """Run a job that prints a line; return the exit code, and what the command says."""
    write_job(desk, name, "sh -c 'echo hello from $(hostname)'", **fields)
    done = desk.run(SLIPSTREAM, "run", f"{name}/{name}.yaml")
    return done.returncode, done.stdout + done.stderr


def test_a_host_that_cannot_be_reached_is_named_and_others_are_used(hosts: Hosts) -> None:
    code, said = run(hosts.desk, "away", ssh={"hosts": ["nowhere", "host1"]})
    assert code == 0, said
    assert "nowhere cannot be reached" in said
    assert "hello from host1" in said
    code, said = run(hosts.desk, "alone", ssh={"hosts": ["nowhere"]})
    assert code == 1
    assert "nowhere cannot be reached" in said
    assert "`ssh nowhere true` must work without a password" in said


def test_a_wrong_key_is_named(hosts: Hosts) -> None:
    hosts.trust(hosts["host1"], key=False)
    code, said = run(hosts.desk, "locked", ssh={"hosts": ["host1"]})
    hosts.trust(hosts["host1"])
    assert code == 2
    assert "host1: ssh failed" in said
    assert "the host accepts no key of yours; check ssh.identity" in said


def test_a_changed_host_key_is_refused(hosts: Hosts) -> None:
    host = hosts["host1"]
    host.kill()
    hosts.change_key(host)
    host.boot()
    code, said = run(hosts.desk, "changed", ssh={"hosts": ["host1"]})
    hosts.introduce()
    assert code == 2
    assert "its host key is not the known one" in said


def test_a_full_disk_is_named(hosts: Hosts) -> None:
    desk = hosts.desk
    desk.write("/home/trainer/big/data.bin", "x" * (6 * MIB))
    code, said = run(desk, "big", ssh={"hosts": ["host2"]})
    assert code == 1
    assert "host2: copying /home/trainer/big failed" in said
    assert "No space left on device" in said
    assert left_behind(hosts["host2"]) == []


def test_a_wrong_clock_is_named(hosts: Hosts) -> None:
    code, said = run(hosts.desk, "clock", ssh={"hosts": ["host3"]})
    assert code == 2
    assert "host3 lacks: the right time, is +3600 s off (set up NTP)" in said


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"software": {"python": "/nope/python3"}}, "/nope/python3 must be Python 3"),
        ({"resources": {"gpus": 2, "gpu": "H100"}}, "host1 lacks: 2 GPUs H100, has 0"),
        ({"resources": {"memory": "900GiB"}}, "host1 lacks: 900 GiB of memory"),
        ({"resources": {"accelerators": {"fpga": 1}}}, "host1 lacks: 1 of /dev/fpga*"),
        ({"software": {"cuda": "12"}}, "host1 lacks: CUDA 12, has none"),
        ({"hosts": 2}, "ssh.hosts names 1 hosts, and the job needs 2"),
    ],
)
def test_what_a_host_lacks_is_named(hosts: Hosts, fields: dict[str, Any], words: str) -> None:
    code, said = run(hosts.desk, "lacking", ssh={"hosts": ["host1"]}, **fields)
    assert code == 2
    assert words in said


def test_frameworks_of_other_versions_are_refused(hosts: Hosts) -> None:
    from run_jobs import PYTHON

    software = {"python": str(PYTHON), "environment": "existing", "frameworks": {"numpy": "0.1"}}
    code, said = run(hosts.desk, "old", ssh={"hosts": ["host1"]}, software=software)
    assert code == 2
    assert "host1 needs numpy 0.1 and has" in said
    assert left_behind(hosts["host1"]) == []


def test_a_connection_to_the_journal_that_ends_is_opened_again(
    hosts: Hosts, tmp_path: Path
) -> None:
    write_job(
        hosts.desk,
        "cut",
        "sh -c 'for i in $(seq 40); do echo step $i; sleep 0.2; done'",
        ssh={"hosts": ["host1"]},
    )
    log = tmp_path / "log"
    client = hosts.desk.start(SLIPSTREAM, "run", "cut/cut.yaml", log=log)
    for step in (3, 20):
        wait_until(partial(_has_printed, log, step))
        tails = [pid for pid, line in hosts["host1"].processes().items() if "tail -c" in line]
        for pid in tails:
            os.kill(pid, signal.SIGKILL)
        assert tails
    assert client.process.wait(60) == 0, log.read_text()
    lines = [line for line in log.read_text().splitlines() if "step" in line]
    assert [line.rpartition("step ")[2] for line in lines] == [str(n) for n in range(1, 41)]


def _has_printed(log: Path, step: int) -> bool:
    return f"step {step}\n" in log.read_text()
