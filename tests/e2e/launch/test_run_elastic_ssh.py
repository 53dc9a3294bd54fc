"""Elastic jobs over real sshd: hosts are added, withdrawn and lost."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Network, open_network

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen"),
    pytest.mark.multiprocess,
]

Run = Callable[..., Any]  # conftest.Launch is what it returns
Wait = Callable[[Callable[[], object]], None]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, wait_until: Wait) -> Iterator[Network]:
    """Yield two hosts with sshd and a desk, which a switch connects."""
    with open_network(tmp_path_factory.mktemp("ssh"), wait_until) as network:
        yield network


class HostList:
    """A program that prints hosts, and the options with which a job at the desk uses it."""

    def __init__(self, folder: Path, *lines: str) -> None:
        self._lines = folder / "lines"
        self._program = folder / "hosts.sh"
        self._program.write_text(f"#!/bin/sh\ncat {self._lines}\n")
        self._program.chmod(0o755)
        self.set(*lines)

    def set(self, *lines: str) -> None:
        """Print these hosts from now on."""
        new = self._lines.with_name("new")
        new.write_text("\n".join(lines))
        new.rename(self._lines)

    def run(self, network: Network, run: Run, *arguments: str) -> Any:
        """Start an elastic job at the desk."""
        options = ("--hosts-from", str(self._program), "--env", "LAUNCH_TOKEN", *network.options)
        return run(*options, *arguments, before=network.at("desk"))


@pytest.mark.slow("hosts of an elastic job")
def test_a_job_follows_the_hosts_that_a_program_prints(
    network: Network, run: Run, tmp_path: Path, wait_until: Wait
) -> None:
    hosts = HostList(tmp_path, "alpha:2")
    actions = ("last=SIGTERM", "show=SLIPSTREAM_MEMBERS", "wait")
    launch = hosts.run(network, run, "--min", "2", "--max", "3", "act.py", *actions)
    launch.wait_for("[alpha:0] waiting", "[alpha:1] waiting")
    hosts.set("beta:2", "alpha:2")
    launch.wait_for("[beta:slot 2] waiting")
    members = r"alpha:\d+,alpha:\d+"
    assert re.search(rf"\[alpha:1\] SLIPSTREAM_MEMBERS={members}\n", launch.output)
    joined = rf"\[beta:slot 2\] SLIPSTREAM_MEMBERS=beta:\d+,beta:\d+,{members}\n"
    assert re.search(joined, launch.output)
    hosts.set("beta:2")
    launch.wait_for("[alpha:0] goodbye after SIGTERM", "[alpha:1] goodbye after SIGTERM")
    launch.wait_for("[beta:slot 3] waiting")
    wait_until(lambda: not any(is_ssh_to(pid, "alpha") for pid in launch.descendants()))
    assert any(is_ssh_to(pid, "beta") for pid in launch.descendants())
    launch.process.send_signal(signal.SIGTERM)
    assert launch.finish() == 0, launch.errors
    assert "[beta:slot 2] goodbye after SIGTERM\n" in launch.output
    assert launch.descendants() == []


@pytest.mark.slow("hosts of an elastic job")
def test_a_host_that_is_lost_is_connected_again(
    network: Network, run: Run, wait_until: Wait
) -> None:
    launch = network.run(run, "alpha,beta", "--min", "1", "act.py", "last=SIGTERM", "wait")
    launch.wait_for("[alpha:0] waiting", "[beta:1]  waiting")
    (client,) = (pid for pid in launch.descendants() if is_ssh_to(pid, "beta"))
    os.kill(client, signal.SIGKILL)
    launch.wait_for(
        "beta cannot be used: the connection to its agent was lost", "1 process running"
    )
    launch.wait_for("[beta:slot 1] waiting")
    assert "rank 0" not in launch.errors
    launch.process.send_signal(signal.SIGTERM)
    assert launch.finish() == 0, launch.errors
    wait_until(lambda: launch.descendants() == [])


def test_a_job_starts_without_a_host_that_cannot_be_used(network: Network, run: Run) -> None:
    launch = network.run(run, "alpha:2,gamma", "--min", "2", "act.py", "show=WORLD_SIZE")
    assert launch.finish() == 0, launch.errors
    assert "[alpha:1] WORLD_SIZE=2\n" in launch.output
    assert launch.errors.count("gamma cannot be used: ssh failed") == 1


def test_another_host_takes_the_place_of_one_that_cannot_be_used(
    network: Network, run: Run
) -> None:
    launch = network.run(run, "gamma:2,beta:2", "--min", "1", "--max", "2", "act.py", "show=RANK")
    assert launch.finish() == 0, launch.errors
    assert "gamma cannot be used" in launch.errors
    assert "[beta:1] RANK=1\n" in launch.output


@pytest.mark.slow("killed launcher")
def test_a_killed_launcher_leaves_nobody_on_any_host(
    network: Network, run: Run, tmp_path: Path, wait_until: Wait
) -> None:
    hosts = HostList(tmp_path, "alpha:1", "beta:1")
    options = ("--max", "2", "--grace", "300ms")
    launch = hosts.run(network, run, *options, "act.py", "ignore=SIGTERM", "spawn", "wait")
    launch.wait_for("[alpha:0] waiting", "[beta:1]  waiting")
    launch.process.kill()
    launch.process.wait()
    wait_until(lambda: launch.descendants() == [], 60)


def is_ssh_to(pid: int, host: str) -> bool:
    """Return whether the process is the ssh client for a host."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return words[0] == "ssh" and host in words


@pytest.mark.slow("hosts of an elastic job")
def test_training_moves_from_one_host_to_another(
    network: Network, run: Run, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    hosts = HostList(tmp_path, "alpha:2")
    launch = hosts.run(network, run, "--min", "1", "--max", "4", "elastic_train.py", str(stop))
    launch.wait_for("[alpha:0] rank 0 of 2", "[alpha:1] rank 1 of 2")
    hosts.set("alpha:2", "beta:2")
    launch.wait_for("[beta:slot 2] rank", "[beta:slot 3] rank", "of 4")
    hosts.set("beta:2")
    launch.wait_for("rank 0 on alpha has left: exit code 143", "rank 1 on alpha has left")
    stop.touch()
    assert launch.finish() == 0, launch.errors
    assert "[beta:slot 2] trained as rank" in launch.output
    assert "[beta:slot 3] trained as rank" in launch.output
    assert "trained as rank 1 of 2\n" in launch.output
    assert "failed" not in launch.errors


@pytest.mark.slow("hosts of an elastic job")
def test_a_job_that_started_on_this_host_alone_gets_other_hosts(
    network: Network, run: Run, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    hosts = HostList(tmp_path, "localhost:2")
    launch = hosts.run(network, run, "--min", "1", "--max", "4", "elastic_train.py", str(stop))
    launch.wait_for("[localhost:0] rank 0 of 2", "[localhost:1] rank 1 of 2")
    hosts.set("localhost:2", "alpha:1")
    launch.wait_for("[alpha:slot 2] rank 2 of 3")
    hosts.set("localhost:1", "alpha:1")
    launch.wait_for("rank 1 on localhost has left: exit code 143")
    stop.touch()
    assert launch.finish() == 0, launch.errors
    assert "[alpha:slot 2] trained as rank 1 of 2" in launch.output
    assert "failed" not in launch.errors
