"""Hosts with real sshd, each a network namespace of its own, for tests of the launcher."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sshd import SSHD, command, make_key, sshd_config
from waiting import LIMIT_SECONDS

Run = Callable[..., Any]  # conftest.Launch is what it returns
Wait = Callable[[Callable[[], object]], None]
ADDRESSES = {"alpha": "10.77.0.1", "beta": "10.77.0.2", "desk": "10.77.0.3"}
# Hosts need not agree about the names of their interfaces; alpha and beta have a second one each.
INTERFACES = {"alpha": "eth0", "beta": "port7", "desk": "eth0"}
SECOND = {"alpha": ("fast0", "10.78.0.1"), "beta": ("fabric", "10.78.0.2")}


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


@contextlib.contextmanager
def open_network(folder: Path, wait_until: Wait) -> Generator[Network]:
    """Yield two hosts with sshd and a desk, which a switch connects."""
    network = Network(prefix=f"t{os.getpid()}", folder=folder)
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
    (folder / "authorized_keys").write_text(make_key(folder / "user_key"))
    known = [
        f"{host},{ADDRESSES[host]},fd77::{ADDRESSES[host][-1]} " + make_key(folder / f"{host}_key")
        for host in ("alpha", "beta")
    ]
    (folder / "known_hosts").write_text("".join(known))


def start_sshd(network: Network, host: str) -> "subprocess.Popen[bytes]":
    """Start a host's sshd, with nothing of the machine's own configuration."""
    Path("/run/sshd").mkdir(exist_ok=True)
    folder = network.folder
    config = folder / f"{host}_config"
    keys = (f"{folder}/{host}_key", f"{folder}/authorized_keys")
    config.write_text(sshd_config(*keys, "PidFile none"))
    sshd = (SSHD, "-D", "-f", str(config), "-E", str(folder / f"{host}_log"))
    return subprocess.Popen([*network.at(host), *sshd])


def can_log_in(network: Network, host: str) -> bool:
    """Return whether the host's sshd lets the user in."""
    options = [part.replace("--ssh-option", "-o") for part in network.options]
    login = [*network.at("desk"), "ssh", *options, "-o", "BatchMode=yes", host, "true"]
    return subprocess.run(login, capture_output=True, check=False).returncode == 0
