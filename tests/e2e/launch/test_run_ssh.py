"""`slipstream run -H` over real sshd, each host a network namespace of its own."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import LIMIT_SECONDS, Network, open_network

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen"),
    pytest.mark.multiprocess,
]

Run = Callable[..., Any]  # conftest.Launch is what it returns
Wait = Callable[[Callable[[], object]], None]
NOBODY = "10.77.0.9"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, wait_until: Wait) -> Iterator[Network]:
    """Yield two hosts with sshd and a desk, which a switch connects."""
    with open_network(tmp_path_factory.mktemp("ssh"), wait_until) as network:
        yield network


def test_ranks_of_two_hosts_meet(network: Network, run: Run) -> None:
    launch = network.run(run, "alpha:2,beta", "meet.py")
    assert launch.finish() == 0, launch.errors
    assert "[alpha:0] met 0 1 2\n" in launch.output
    assert "[alpha:1] rank 1/3 local 1 from environment key 64" in launch.output
    assert "[beta:2]  rank 2/3 local 0 from environment key 64" in launch.output


@pytest.mark.slow("allowed interfaces of hosts")
@pytest.mark.parametrize(
    ("interfaces", "addresses"),
    [
        ("", ("10.77.0.1", "10.77.0.2")),
        ("^lo", ("10.77.0.1", "10.77.0.2")),
        ("eth,port", ("10.77.0.1", "10.77.0.2")),
        ("fa", ("10.78.0.1", "10.78.0.2")),
        ("=fast0,fabric", ("10.78.0.1", "10.78.0.2")),
        ("^lo,eth,port", ("10.78.0.1", "10.78.0.2")),
    ],
)
def test_the_interfaces_that_are_allowed_are_used_whatever_each_host_calls_them(
    network: Network, run: Run, interfaces: str, addresses: tuple[str, str]
) -> None:
    environ = {"SLIPSTREAM_IFACE": interfaces}
    launch = network.run(run, "alpha,beta", "addresses.py", environ=environ)
    assert launch.finish() == 0, launch.errors
    assert f"[alpha:0] connected at {addresses[0]}\n" in launch.output
    assert f"[beta:1]  connected at {addresses[1]}\n" in launch.output


def test_a_host_without_an_allowed_interface_says_which_it_has(network: Network, run: Run) -> None:
    environ = {"SLIPSTREAM_IFACE": "=eth0"}
    launch = network.run(run, "alpha,beta", "addresses.py", environ=environ)
    assert launch.finish() == 1
    assert "rank 1 on beta failed first" in launch.errors
    assert "SLIPSTREAM_IFACE" in launch.errors
    assert "port7" in launch.errors


def test_hosts_can_be_ipv6_addresses_of_another_user(network: Network, run: Run) -> None:
    launch = network.run(run, "root@[fd77::1]:1,[fd77::2]:1", "meet.py")
    assert launch.finish() == 0, launch.errors
    assert "met 0 1\n" in launch.output


def test_this_host_can_take_part(network: Network, run: Run) -> None:
    launch = network.run(run, "localhost,beta", "meet.py")
    assert launch.finish() == 0, launch.errors
    assert "[localhost:0] met 0 1\n" in launch.output


def test_another_python_there_does_not_change_the_one_here(
    network: Network, run: Run, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "python"
    elsewhere.write_text(f'#!/bin/sh\nVIA=elsewhere exec {sys.executable} "$@"\n')
    elsewhere.chmod(0o755)
    script = tmp_path / "via.py"
    script.write_text("import os; print(os.environ['RANK'], os.environ.get('VIA', 'here'))")
    launch = network.run(run, "localhost,beta", "--python", str(elsewhere), str(script))
    assert launch.finish() == 0, launch.errors
    assert sorted(launch.output.splitlines()) == [
        "[beta:1]      1 elsewhere",
        "[localhost:0] 0 here",
    ]


def test_directory_and_variables_are_handed_over(
    network: Network, run: Run, tmp_path: Path
) -> None:
    arguments = ("--cwd", str(tmp_path), "--env", "A=b c", "sh", "-c", "echo $PWD $A $HIDDEN.")
    launch = network.run(run, "alpha", *arguments, environ={"HIDDEN": "1"})
    assert launch.finish() == 0, launch.errors
    assert launch.output == f"[0] {tmp_path} b c .\n"


def test_both_hosts_are_led_to_the_nccl_plugin(network: Network, run: Run) -> None:
    say = "ls ${LD_LIBRARY_PATH%%:*}/libnccl-net-$NCCL_NET_PLUGIN.so; "
    say += "echo $NCCL_NET ${#SLIPSTREAM_JOB_KEY}"
    launch = network.run(run, "alpha:2,beta:2", "--nccl-plugin", "sh", "-c", say)
    assert launch.finish() == 0, launch.errors
    for rank in ("[alpha:0] ", "[alpha:1] ", "[beta:2]  ", "[beta:3]  "):
        assert f"{rank}Slipstream 64\n" in launch.output


def test_a_rank_that_fails_on_one_host_ends_those_of_the_other(network: Network, run: Run) -> None:
    actions = ("1:error=last words", "1:exit=3", "spawn", "escape", "wait")
    launch = network.run(run, "alpha,beta", "act.py", *actions)
    assert launch.finish() == 3
    assert "rank 1 on beta failed first" in launch.errors
    assert "    last words\n" in launch.errors
    assert launch.descendants() == []
    assert time.monotonic() - launch.began_at < LIMIT_SECONDS / 2


@pytest.mark.slow("killed launcher")
def test_a_killed_launcher_leaves_nobody_on_any_host(
    network: Network, run: Run, wait_until: Wait
) -> None:
    launch = network.run(run, "alpha:2,beta:2", "act.py", "ignore=SIGTERM", "spawn", "wait")
    launch.wait_for("[alpha:0] wait", "[alpha:1] wait", "[beta:2]  wait", "[beta:3]  wait")
    assert len(launch.descendants()) >= 8
    launch.process.kill()
    launch.process.wait()
    wait_until(lambda: launch.descendants() == [])


def test_ctrl_c_reaches_every_host(network: Network, run: Run) -> None:
    launch = network.run(run, "alpha,beta", "act.py", "last=SIGINT", "wait")
    launch.wait_for("[alpha:0] waiting", "[beta:1]  waiting")
    os.killpg(launch.process.pid, signal.SIGINT)
    assert launch.finish() == 0, launch.errors
    assert "[alpha:0] goodbye after SIGINT\n" in launch.output
    assert "[beta:1]  goodbye after SIGINT\n" in launch.output


def test_a_lost_connection_ends_both_sides(network: Network, run: Run, wait_until: Wait) -> None:
    launch = network.run(run, "alpha,beta", "act.py", "wait")
    launch.wait_for("[alpha:0] waiting", "[beta:1]  waiting")
    (client,) = (pid for pid in launch.descendants() if is_ssh_to(pid, "beta"))
    os.kill(client, signal.SIGKILL)
    assert launch.finish() == 1
    assert "beta failed first" in launch.errors
    assert "the connection to its agent was lost" in launch.errors
    wait_until(lambda: launch.descendants() == [])


def test_the_key_is_on_no_command_line_of_any_host(network: Network, run: Run) -> None:
    launch = network.run(run, "alpha,beta", "act.py", "wait")
    launch.wait_for("[alpha:0] waiting", "[beta:1]  waiting")
    environments = [read(pid, "environ") for pid in launch.descendants()]
    keys = {
        item.split("=")[1]
        for items in environments
        for item in items.split("\0")
        if item.startswith("SLIPSTREAM_JOB_KEY=")
    }
    assert len(keys) == 1
    (key,) = keys
    commands = [read(int(path.name), "cmdline") for path in Path("/proc").glob("[0-9]*")]
    assert any("slipstream.cluster.launch.agent" in command for command in commands)
    assert not any(key in command for command in commands)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("hosts", "arguments", "said"),
    [
        (f"alpha,{NOBODY}", ("act.py",), ("ssh failed", NOBODY, "No route to host")),
        ("alpha,gamma", ("act.py",), ("gamma failed first", "Could not resolve hostname")),
        (
            "beta",
            ("--ssh-option", "Port=23", "act.py"),
            ("beta failed first", "`ssh beta true`", "Connection refused"),
        ),
        ("nobody@beta", ("act.py",), ("ssh failed", "`ssh nobody@beta true`", "Permission denied")),
        (
            "beta",
            ("--python", "/no/python", "act.py"),
            ("no agent could be started (exit code 127)", "/no/python"),
        ),
        ("alpha,beta", ("no-such-program",), ("cannot run 'no-such-program'",)),
        ("alpha,beta", ("--cwd", "/no/where", "true"), ("cannot run 'true' in '/no/where'",)),
    ],
)
def test_a_host_that_cannot_take_part_is_explained(
    network: Network, run: Run, hosts: str, arguments: tuple[str, ...], said: tuple[str, ...]
) -> None:
    launch = network.run(run, hosts, *arguments)
    assert launch.finish() == 1
    for text in said:
        assert text in launch.errors
    assert launch.output == ""


@pytest.fixture
def mute_python(tmp_path: Path) -> str:
    """Return a program that never becomes an agent."""
    mute = tmp_path / "python"
    mute.write_text("#!/bin/sh\necho here I am\nexec sleep 600\n")
    mute.chmod(0o755)
    return str(mute)


def test_a_host_that_never_answers_is_given_up(
    network: Network, run: Run, mute_python: str
) -> None:
    limit = {"SLIPSTREAM_CONNECT_TIMEOUT": "1.5"}
    launch = network.run(run, "alpha", "--python", mute_python, "act.py", environ=limit)
    assert launch.finish() == 1
    assert "alpha failed first" in launch.errors
    assert "its agent did not answer within 1.5 s" in launch.errors


def test_ctrl_c_needs_no_answer_from_the_hosts(
    network: Network, run: Run, wait_until: Wait, mute_python: str
) -> None:
    launch = network.run(run, "alpha", "--python", mute_python, "act.py")
    wait_until(lambda: any(is_ssh_to(pid, "alpha") for pid in launch.descendants()))
    os.killpg(launch.process.pid, signal.SIGINT)
    assert launch.finish() == 128 + signal.SIGINT
    assert launch.errors == "slipstream: SIGINT goes to every rank; another one kills them\n"


def read(pid: int, file: str) -> str:
    """Return a file of a process, or nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_ssh_to(pid: int, host: str) -> bool:
    """Return whether the process is the ssh client for a host."""
    words = read(pid, "cmdline").split("\0")
    return words[0] == "ssh" and host in words
