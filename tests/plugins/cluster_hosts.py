"""Hosts for tests of the cluster, and the desk at which the user sits.

A host reaches another one over the network and through folders that both mount, and in no other
way. The desk has the key with which `trainer`, an ordinary user of every host, logs in, and it
knows the keys of all hosts. It has no sshd.
"""

import contextlib
import os
from collections.abc import Generator, Mapping
from pathlib import Path

from host import SSHD, Host
from host_boot import HOME, UID, Disk
from sshd import make_key, sshd_config
from switch import Switch

NETWORK = "10.91.0"
NOWHERE = f"{NETWORK}.250"  # no host has this address; its name is `nowhere`
SSHD_FILES = "/etc/ssh/test"


class Hosts:
    """The desk and further hosts, which a switch connects."""

    def __init__(self, folder: Path, shared: Mapping[str, Path]) -> None:
        self.folder, self.shared = folder, shared
        self.switch = Switch()
        self.by_name: dict[str, Host] = {}
        self.desk = self.make("desk", f"{NETWORK}.1")
        self.user_key = make_key(self.desk.path(f"{HOME}/.ssh/id_ed25519"))
        os.chown(self.desk.path(f"{HOME}/.ssh/id_ed25519"), UID, UID)
        self.desk.write(f"{HOME}/.ssh/config", "StrictHostKeyChecking yes\n", 0o600)
        self.introduce()
        self.desk.boot()

    def __getitem__(self, name: str) -> Host:
        return self.by_name[name]

    def start(
        self, count: int = 1, *, home_bytes: int | None = None, clock_seconds: float = 0.0
    ) -> list[Host]:
        """Boot further hosts at the same time, and return them: `host1`, `host2` and so on.

        Args:
            count: Number of hosts.
            home_bytes: Size of a file system in memory at /home; default is a folder on the disk.
            clock_seconds: Seconds that the hosts' clocks are ahead of the desk's.
        """
        begin = len(self.by_name)
        environ = clock_variables(clock_seconds) if clock_seconds else {}
        made = [
            self.make(f"host{number}", f"{NETWORK}.{10 + number}", home_bytes, environ)
            for number in range(begin, begin + count)
        ]
        for host in made:
            self.set_up_sshd(host)
        self.introduce()
        for host in made:
            host.switch_on()
        for host in made:
            host.wait_for_boot()
        return made

    def make(
        self,
        name: str,
        address: str,
        home_bytes: int | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Host:
        """Return a new host, which is off."""
        disk = Disk(folder=self.folder / name, home_bytes=home_bytes, shared=self.shared)
        disk.install()
        self.by_name[name] = host = Host(
            name=name,
            address=address,
            disk=disk,
            switch=self.switch,
            environ=environ or {},
        )
        return host

    def set_up_sshd(self, host: Host) -> None:
        """Make the host's key, and let the user log in."""
        host.path(SSHD_FILES).mkdir()
        make_key(host.path(f"{SSHD_FILES}/host_key"))
        variables = " ".join(f'"{key}={value}"' for key, value in host.environ.items())
        settings = sshd_config(
            f"{SSHD_FILES}/host_key",
            f".ssh/authorized_keys {SSHD_FILES}/authorized_keys",
            "PidFile /run/sshd.pid",
            *([f"SetEnv {variables}"] if variables else []),
        )
        host.path(f"{SSHD_FILES}/config").write_text(settings)
        self.trust(host)
        host.services.append(SSHD)

    def trust(self, host: Host, *, key: bool = True) -> None:
        """Let the user's key log in on a host, or refuse it from now on."""
        keys = self.user_key if key else ""
        host.path(f"{SSHD_FILES}/authorized_keys").write_text(keys)

    def change_key(self, host: Host) -> None:
        """Give a host another key, as if another machine had its address; it needs a boot."""
        for name in ("host_key", "host_key.pub"):
            host.path(f"{SSHD_FILES}/{name}").unlink()
        make_key(host.path(f"{SSHD_FILES}/host_key"))

    def introduce(self) -> None:
        """Tell all hosts the names of all, and the desk the keys of those that have an sshd."""
        names = "".join(f"{host.address} {host.name}\n" for host in self.by_name.values())
        local = "127.0.0.1 localhost\n"
        for host in self.by_name.values():
            host.path("/etc/hosts").write_text(f"{local}{names}{NOWHERE} nowhere\n")
            host.path("/etc/hostname").write_text(f"{host.name}\n")
        known = [
            f"{host.name},{host.address} {host.path(f'{SSHD_FILES}/host_key.pub').read_text()}"
            for host in self.by_name.values()
            if SSHD in host.services
        ]
        self.desk.write(f"{HOME}/.ssh/known_hosts", "".join(known), 0o600)

    def close(self) -> None:
        """Switch everything off."""
        for host in self.by_name.values():
            host.kill()
        self.switch.close()


def clock_variables(seconds: float) -> dict[str, str]:
    """Return the variables under which programs see a clock that is so many seconds ahead.

    The kernel can give a host no time of its own, so a library changes what the C library tells.
    """
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    assert found, "libfaketime is missing: apt-get install faketime"
    return {
        "LD_PRELOAD": str(found[0]),
        "FAKETIME": f"{seconds:+.0f}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@contextlib.contextmanager
def open_hosts(folder: Path, shared: Mapping[str, Path] | None = None) -> Generator[Hosts]:
    """Yield a desk, to which further hosts can be added; switch all of them off at the end.

    Args:
        folder: Empty folder for the hosts' files.
        shared: Folders that all hosts mount, by their path on the hosts.
    """
    for shared_folder in (shared or {}).values():
        shared_folder.chmod(0o1777)
    hosts = Hosts(folder, shared or {})
    try:
        yield hosts
    finally:
        hosts.close()
