"""Hosts in the place of a cloud's machines: each machine that the cloud lists as running is a host.

moto's server is the cloud. It boots nothing, so a thread looks at its list: a new machine becomes a
host with that machine's addresses and ssh key, one that is stopped keeps its disk, and one that has
ended is gone. The script of the first boot does not run, but its deadline holds: at that time, the
host powers itself off, and the cloud ends the machine.
"""

import base64
import contextlib
import ctypes
import os
import re
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3  # pyright: ignore[reportMissingTypeStubs]
from cluster_hosts import NETWORK, SSHD_FILES, Hosts
from host import Host
from host_boot import HOME, UID, add_line
from moto_server import IMAGE, INSTANCE_TYPE, SERVER, aws_environment
from switch import configure
from waiting import wait_until

ADDRESS, PORT = f"{NETWORK}.2", 5000
URL = f"http://{ADDRESS}:{PORT}"
DEADLINE_FILE = "/etc/slipstream-deadline"
LOOK_SECONDS = 0.2
# Fields of a job's `cloud` that moto can fulfil; only the desk may use ssh.
CLOUD_FIELDS = {"instance_type": INSTANCE_TYPE, "image": IMAGE, "open_to": [f"{NETWORK}.1/32"]}
# Users of a machine: they all are the one user of a host.
LOGINS = ("ubuntu", "ec2-user", "admin")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A machine as the cloud lists it.

    Attributes:
        external_id: The cloud's identifier.
        is_on: Whether the machine should run.
        address: Address for everybody.
        inner_address: Address for the other machines.
        key: Public ssh key.
        deadline_at: Time in seconds since 1970 at which it powers itself off, from its script.
    """

    external_id: str
    is_on: bool
    address: str
    inner_address: str
    key: str
    deadline_at: float


class MotoMachines:
    """The machines that moto's server lists."""

    def __init__(self, url: str = URL) -> None:
        variables = aws_environment(url)
        self.client: Any = boto3.client(  # pyright: ignore[reportUnknownMemberType]
            "ec2",
            endpoint_url=url,
            region_name=variables["AWS_DEFAULT_REGION"],
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        )
        self._deadlines: dict[str, float] = {}

    def listed(self) -> list[Listed]:
        """Return all machines that have not ended."""
        pairs = self.client.describe_key_pairs(IncludePublicKey=True)["KeyPairs"]
        keys = {pair["KeyName"]: pair["PublicKey"] for pair in pairs}
        pages = self.client.get_paginator("describe_instances").paginate()
        instances = [
            item for page in pages for made in page["Reservations"] for item in made["Instances"]
        ]
        return [
            Listed(
                external_id=item["InstanceId"],
                is_on=item["State"]["Name"] in ("pending", "running"),
                address=item.get("PublicIpAddress", ""),
                inner_address=item["PrivateIpAddress"],
                key=keys.get(item.get("KeyName", ""), ""),
                deadline_at=self._deadline(item["InstanceId"]),
            )
            for item in instances
            if item["State"]["Name"] not in ("shutting-down", "terminated")
        ]

    def end(self, external_id: str) -> None:
        """End a machine that has powered itself off, or is taken away."""
        self.client.terminate_instances(InstanceIds=[external_id])

    def _deadline(self, external_id: str) -> float:
        if external_id not in self._deadlines:
            answer = self.client.describe_instance_attribute(
                InstanceId=external_id, Attribute="userData"
            )
            script = answer["UserData"].get("Value", "")
            text = base64.b64decode(script).decode()
            found = re.search(rf"echo (\d+) > {DEADLINE_FILE}", text)
            self._deadlines[external_id] = float(found[1]) if found else float("inf")
        return self._deadlines[external_id]


class MachineRoom:
    """The hosts that stand in for machines; `by_id` has them by the cloud's identifiers."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.by_id: dict[str, Host] = {}
        self.cloud = hosts.make("cloud", ADDRESS)
        self.cloud.boot()
        self.cloud.serve(f"{SERVER} -H 0.0.0.0 -p {PORT}")
        for host in (hosts.desk, self.cloud):
            configure(host.first, "route add default dev eth0")
        self._num_made = 0
        self._serving, self._closing = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        # Hosts end with the thread that boots them.
        self._thread = threading.Thread(target=self._look_after, name="machine room")
        self._thread.start()
        wait_until(self._serving.is_set)

    @property
    def environ(self) -> dict[str, str]:
        """Variables of a client at the desk."""
        return aws_environment(URL)

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

    def close(self) -> None:
        """Switch all machines off."""
        self._closing.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _look_after(self) -> None:
        try:
            enter_network(self.cloud)
            wait_until(lambda: self.cloud.run("ss", "-Hltn", f"sport = :{PORT}").stdout)
            machines = MotoMachines()
            self._serving.set()
            while not self._closing.wait(LOOK_SECONDS):
                self._follow(machines)
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            self._error = error
        finally:
            self._serving.set()
            for host in self.by_id.values():
                host.kill()

    def _follow(self, machines: MotoMachines) -> None:
        listed = {machine.external_id: machine for machine in machines.listed()}
        for external_id, host in list(self.by_id.items()):
            machine = listed.get(external_id)
            if machine is None:
                host.kill()
                self.hosts.by_name.pop(host.name, None)
                del self.by_id[external_id]
            elif not machine.is_on or machine.address != host.address:  # stopped in the meantime
                host.kill()
            elif float(host.path(DEADLINE_FILE).read_text()) < time.time():
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
        host.path("/etc/hostname").write_text(f"{host.name}\n")
        host.path("/etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n")
        return host


def enter_network(host: Host) -> None:
    """Put the calling thread, and what it starts, into the network of a host."""
    with Path(f"/proc/{host.first}/ns/net").open() as file:
        done = ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0)
    assert done == 0, os.strerror(ctypes.get_errno())


@contextlib.contextmanager
def open_machine_room(hosts: Hosts) -> Generator[MachineRoom]:
    """Yield a cloud whose machines are hosts; switch them off at the end.

    Clients at the desk reach it with the variables `environ`; `CLOUD_FIELDS` chooses its machines.

    Args:
        hosts: Desk, and the network of all hosts.
    """
    room = MachineRoom(hosts)
    try:
        yield room
    finally:
        room.close()
