"""Hosts in the place of a cloud's machines: each machine that the cloud lists as running is a host.

The cloud is moto's server, or the fake of Alibaba Cloud. These boot nothing, so a thread looks at
their lists: a new machine becomes a host with that machine's addresses and ssh key, one that is
stopped keeps its disk, and one that has ended is gone. The script of the first boot does not run,
but its deadline holds: then, the host powers itself off, and the cloud ends the machine.
"""

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Generator, Mapping
from pathlib import Path

from cluster_hosts import NETWORK, SSHD_FILES, Hosts
from host import Host
from host_boot import HOME, UID, add_line
from listed_machines import CloudStandIn, Listed, ListedMachines, MotoStandIn
from moto_server import IMAGE, INSTANCE_TYPE
from switch import configure
from waiting import wait_until

ADDRESS = f"{NETWORK}.2"
DEADLINE_FILE = "/etc/slipstream-deadline"
LOOK_SECONDS = 0.2
# Fields of a job's `cloud` that moto can fulfil; only the desk may use ssh.
CLOUD_FIELDS = {"instance_type": INSTANCE_TYPE, "image": IMAGE, "open_to": [f"{NETWORK}.1/32"]}
# Users of a machine, beside root: names of the one user of a host.
LOGINS = ("ubuntu", "ec2-user", "ecs-user")


class MachineRoom:
    """The hosts that stand in for machines; `by_id` has them by the cloud's identifiers."""

    def __init__(
        self, hosts: Hosts, stand_in: CloudStandIn, image_files: Mapping[str, str]
    ) -> None:
        self.hosts = hosts
        self.image_files = image_files
        self.environ = stand_in.environ
        self._stand_in = stand_in
        self.by_id: dict[str, Host] = {}
        self.cloud = hosts.make("cloud", ADDRESS)
        self.cloud.boot()
        for service in stand_in.services:
            self.cloud.serve(service)
        for host in (hosts.desk, self.cloud):
            configure(host.first, "route add default dev eth0")
        self._num_made = 0
        self._taken: set[str] = set()
        self._serving, self._closing = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        # Hosts end with the thread that boots them.
        self._thread = threading.Thread(target=self._look_after, name="machine room")
        self._thread.start()
        wait_until(self._serving.is_set)

    @property
    def running(self) -> list[Host]:
        """Hosts that are on."""
        return [host for host in self.by_id.values() if host.power is not None]

    def wait_for(self, count: int) -> list[Host]:
        """Wait until so many hosts are on, and return them in the order in which they were made."""
        wait_until(lambda: self._error is not None or len(self.running) == count)
        if self._error is not None:
            raise self._error
        return self.running

    def take_away(self, external_id: str) -> None:
        """Let the cloud end a machine, as it does with spot machines."""
        self._taken.add(external_id)

    def close(self) -> None:
        """Switch all machines off."""
        self._closing.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _look_after(self) -> None:
        stand_in = self._stand_in
        try:
            enter_network(self.cloud)
            wait_until(lambda: self.cloud.run("ss", "-Hltn", f"sport = :{stand_in.port}").stdout)
            machines = stand_in.machines()
            self._serving.set()
            while not self._closing.wait(LOOK_SECONDS):
                self._follow(machines)
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            self._error = error
        finally:
            self._serving.set()
            for host in self.by_id.values():
                host.kill()

    def _follow(self, machines: ListedMachines) -> None:
        listed = {machine.external_id: machine for machine in machines.listed()}
        for external_id, host in list(self.by_id.items()):
            machine = listed.get(external_id)
            if machine is None:
                host.kill()
                self.hosts.by_name.pop(host.name, None)
                del self.by_id[external_id]
            elif not machine.is_on or machine.address != host.address:  # stopped in the meantime
                host.kill()
            elif (
                external_id in self._taken
                or float(host.path(DEADLINE_FILE).read_text()) < time.time()
            ):
                machines.end(external_id)
        for machine in listed.values():
            if machine.is_on and machine.address:
                self._switch_on(machine)

    def _switch_on(self, machine: Listed) -> None:
        host = self.by_id.get(machine.external_id)
        if host is None:
            host = self._make(machine)
        elif host.power is not None:
            return
        host.address = machine.address
        host.boot()
        inner = [f"address add {machine.inner_address}/32 dev eth0"]
        configure(host.first, *inner, "route add default dev eth0")
        self.by_id[machine.external_id] = host

    def _make(self, machine: Listed) -> Host:
        self._num_made += 1
        host = self.hosts.make(f"vm{self._num_made}", machine.address)
        for login in LOGINS:
            add_line(host.path("/etc/passwd"), f"{login}:x:{UID}:{UID}::{HOME}:/bin/bash")
            add_line(host.path("/etc/shadow"), f"{login}:*:20000:0:99999:7:::")
        self.hosts.set_up_sshd(host)
        host.path(f"{SSHD_FILES}/authorized_keys").write_text(machine.key)
        host.path(DEADLINE_FILE).write_text(f"{machine.deadline_at}\n")
        host.path(DEADLINE_FILE).chmod(0o666)  # its user has no sudo
        for path, text in self.image_files.items():
            host.path(path).parent.mkdir(parents=True, exist_ok=True)
            host.path(path).write_text(text)
            host.path(path).chmod(0o755)
        host.path("/etc/hostname").write_text(f"{host.name}\n")
        host.path("/etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n")
        return host


def enter_network(host: Host) -> None:
    """Put the calling thread, and what it starts, into the network of a host."""
    with Path(f"/proc/{host.first}/ns/net").open() as file:
        done = ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0)
    assert done == 0, os.strerror(ctypes.get_errno())


@contextlib.contextmanager
def open_machine_room(
    hosts: Hosts,
    stand_in: CloudStandIn | None = None,
    image_files: Mapping[str, str] | None = None,
) -> Generator[MachineRoom]:
    """Yield a cloud whose machines are hosts; switch them off at the end.

    Clients at the desk reach it with the variables `environ`; `CLOUD_FIELDS` chooses its machines.

    Args:
        hosts: Desk, and the network of all hosts.
        stand_in: Program in the place of the cloud; default is moto's server.
        image_files: Programs that each machine has from the start, by their paths.
    """
    room = MachineRoom(hosts, stand_in or MotoStandIn(ADDRESS), image_files or {})
    try:
        yield room
    finally:
        room.close()
