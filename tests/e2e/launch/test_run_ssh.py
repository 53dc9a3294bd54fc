"""`slipstream run -H` over real sshd, each host a network namespace of its own."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen"),
    pytest.mark.multiprocess,
]

Run = Callable[..., Any]  # conftest.Launch is what it returns
Wait = Callable[[Callable[[], object]], None]
LIMIT_SECONDS = 60.0
ADDRESSES = {"alpha": "10.77.0.1", "beta": "10.77.0.2", "desk": "10.77.0.3"}
NOBODY = "10.77.0.9"
# Hosts need not agree about the names of their interfaces; alpha and beta have a second one each.
INTERFACES = {"alpha": "eth0", "beta": "port7", "desk": "eth0"}
SECOND = {"alpha": ("fast0", "10.78.0.1"), "beta": ("fabric", "10.78.0.2")}


def command(line: str) -> None:
    """Run a command line that must succeed."""
    subprocess.run(shlex.split(line), check=True, capture_output=True, timeout=LIMIT_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Network:
    """Hosts alpha and beta with sshd, and the desk at which the user sits."""

    prefix: str
    folder: Path

    def namespace(self, host: str) -> str:
        return f"{self.prefix}{host}"

    def at(self, host: str) -> tuple[str, ...]:
        """Return what runs a command on a host."""
        return ("ip", "netns", "exec", self.namespace(host))

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options that let `slipstream run` log in."""
        options = (
            f"IdentityFile={self.folder}/user_key",
            "IdentitiesOnly=yes",
            f"UserKnownHostsFile={self.folder}/known_hosts",
        )
        return tuple(part for option in options for part in ("--ssh-option", option))

    def run(self, run: Run, hosts: str, *arguments: str, **others: Any) -> Any:
        """Start `slipstream run` at the desk; every rank carries its token."""
        token = ("--env", "LAUNCH_TOKEN")
        all_arguments = ("-H", hosts, *token, *self.options, *arguments)
        return run(*all_arguments, before=self.at("desk"), **others)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, wait_until: Wait) -> Iterator[Network]:
    """Yield two hosts with sshd and a desk, which a switch connects."""
    network = Network(prefix=f"t{os.getpid()}", folder=tmp_path_factory.mktemp("ssh"))
    servers: list[subprocess.Popen[bytes]] = []
    try:
        connect(network)
        make_keys(network)
        servers = [start_sshd(network, host) for host in ("alpha", "beta")]
        for host in ("alpha", "beta"):
            wait_until(lambda host=host: can_log_in(network, host))
        yield network
    finally:
        for server in servers:
            server.terminate()
            server.wait(LIMIT_SECONDS)
        disconnect(network)


def connect(network: Network) -> None:
    """Make the namespaces, a switch with a cable to each, and their names."""
    switch = network.namespace("switch")
    command(f"ip netns add {switch}")
    command(f"ip -n {switch} link add switch type bridge")
    command(f"ip -n {switch} link set switch up")
    for host, address in ADDRESSES.items():
        name = network.namespace(host)
        command(f"ip netns add {name}")
        command(f"ip -n {name} link set lo up")
        plug_in(network, host, INTERFACES[host], address)
        command(f"ip -n {name} address add fd77::{address[-1]}/64 dev {INTERFACES[host]} nodad")
        if host in SECOND:
            plug_in(network, host, *SECOND[host])
        names = Path("/etc/netns") / name / "hosts"
        names.parent.mkdir(parents=True)
        names.write_text("".join(f"{at} {each}\n" for each, at in ADDRESSES.items()))


def plug_in(network: Network, host: str, interface: str, address: str) -> None:
    """Give a host an interface with a cable to the switch."""
    name, switch = network.namespace(host), network.namespace("switch")
    cable = f"{host}-{interface}"
    command(f"ip -n {name} link add {interface} type veth peer name {cable} netns {switch}")
    command(f"ip -n {switch} link set {cable} master switch up")
    command(f"ip -n {name} address add {address}/24 dev {interface}")
    command(f"ip -n {name} link set {interface} up")


def disconnect(network: Network) -> None:
    """End what still runs in the namespaces and take them away."""
    for host in ("switch", *ADDRESSES):
        name = network.namespace(host)
        listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, check=False)
        for pid in listed.stdout.split():
            with contextlib.suppress(ProcessLookupError):  # it may end by itself meanwhile
                os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
        names = Path("/etc/netns") / name
        if names.exists():
            (names / "hosts").unlink()
            names.rmdir()


def make_keys(network: Network) -> None:
    """Make the user's key, one host key per host, and the lists that make them trust each other."""
    folder = network.folder
    for name in ("user_key", "alpha_key", "beta_key"):
        command(f"ssh-keygen -q -t ed25519 -N '' -f {folder}/{name}")
    (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
    known = [
        f"{host},{ADDRESSES[host]},fd77::{ADDRESSES[host][-1]} "
        + (folder / f"{host}_key.pub").read_text()
        for host in ("alpha", "beta")
    ]
    (folder / "known_hosts").write_text("".join(known))


def start_sshd(network: Network, host: str) -> "subprocess.Popen[bytes]":
    """Start a host's sshd, with nothing of the machine's own configuration."""
    Path("/run/sshd").mkdir(exist_ok=True)
    config = network.folder / f"{host}_config"
    config.write_text(
        f"HostKey {network.folder}/{host}_key\n"
        f"AuthorizedKeysFile {network.folder}/authorized_keys\n"
        "PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n"
    )
    sshd = ("/usr/sbin/sshd", "-D", "-f", str(config), "-E", str(network.folder / f"{host}_log"))
    return subprocess.Popen([*network.at(host), *sshd])


def can_log_in(network: Network, host: str) -> bool:
    """Return whether the host's sshd lets the user in."""
    options = [part.replace("--ssh-option", "-o") for part in network.options]
    login = [*network.at("desk"), "ssh", *options, "-o", "BatchMode=yes", host, "true"]
    return subprocess.run(login, capture_output=True, check=False).returncode == 0


def test_ranks_of_two_hosts_meet(network: Network, run: Run) -> None:
    launch = network.run(run, "alpha:2,beta", "meet.py")
    assert launch.finish() == 0, launch.errors
    assert "[alpha:0] met 0 1 2\n" in launch.output
    assert "[alpha:1] rank 1/3 local 1 from environment key 64" in launch.output
    assert "[beta:2]  rank 2/3 local 0 from environment key 64" in launch.output


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
    assert any("slipstream.cluster.agent" in command for command in commands)
    assert not any(key in command for command in commands)


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
