"""A named group of machines without a job: created, stopped, started, used and given back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from slipstream.cluster.control.estimate import Estimate
from slipstream.cluster.control.stages import StageListener
from slipstream.cluster.engines.ssh_host import CommandFailedError, SshHost
from slipstream.cluster.groups.creation_stages import CreationStages
from slipstream.cluster.groups.group_record import (
    INNER_KEY,
    KEY,
    GroupFolder,
    GroupRecord,
    merged,
)
from slipstream.cluster.groups.inner_ssh import set_up_machine
from slipstream.cluster.groups.machine_shell import MachineShell
from slipstream.cluster.providers.boot import DEADLINE_FILE, extension_command
from slipstream.cluster.providers.protocol import ClusterMachine, Provider
from slipstream.cluster.records import ResourceLedger
from slipstream.errors import ConfigError, PeerError, UsageError

# Longest time from the creation of a machine to its first login. Chosen by hand.
BOOT_SECONDS = 600.0
RETRY_SECONDS = 0.5
NUM_THREADS = 16

T = TypeVar("T")


class MachineGroup:
    """The machines of one name.

    Machines power themselves off at their deadline, also if nobody asks for anything any more.

    Args:
        record: Machines that are wanted.
        provider: Provider in the region of the record.
        ledger: ResourceLedger that gets the resources.
        home: Folder of the records on this machine.
    """

    def __init__(
        self, record: GroupRecord, provider: Provider, ledger: ResourceLedger, home: Path
    ) -> None:
        self.record = record
        self._provider = provider
        self._ledger = ledger
        self._folder = GroupFolder(home, record.name)
        self._machines: list[ClusterMachine] | None = None

    @property
    def name(self) -> str:
        """Name of the group."""
        return self.record.name

    # ---- before anything is created ----

    def exists(self) -> bool:
        """Return whether the group was asked for before, and its time is not over."""
        known = self._folder.read()
        return known is not None and known.request.deadline_at > time.time()

    def estimate(self) -> Estimate:
        """Return the machines and the most that they cost.

        Raises:
            UsageError: the provider has no such type of machine.
        """
        request = self.record.request
        named = self._provider.offers(request.instance_type)
        offers = [offer for offer in named if offer.instance_type == request.instance_type]
        if not offers:
            raise UsageError(
                f"{self._provider.name} has no machine {request.instance_type!r} in"
                f" {self._provider.region}; list them with: slipstream cluster gpus --on"
                f" {self._provider.name}"
            )
        return Estimate(
            offer=offers[0],
            num_machines=request.num_machines,
            is_spot=request.is_spot,
            hours=max(request.deadline_at - time.time(), 0.0) / 3600.0,
        )

    def keep_estimate(self, estimate: Estimate) -> None:
        """Keep the largest cost, which the record has from the creation on."""
        self.record = replace(self.record, most=estimate.most)

    # ---- life ----

    def up(self, listener: StageListener) -> Sequence[ClusterMachine]:
        """Create what does not exist, and return the machines, which can be used.

        Args:
            listener: Listener that is told of each stage and of each part that is made.

        Raises:
            UsageError: the group exists with other machines, or a run has its name.
            PeerError: a machine lets nobody in within ten minutes.
        """
        known = self._folder.read()
        if known is None and self._ledger.resources(self.name):
            raise UsageError(
                f"{self.name} has resources that belong to a run, or that an interrupted end has"
                f" left; choose another name, or call: slipstream cluster gc"
            )
        self.record = merged(known, self.record)
        _, public_key = self._folder.keys(KEY)
        self._folder.keys(INNER_KEY)
        self.record = replace(
            self.record, request=replace(self.record.request, public_key=public_key)
        )
        self._folder.write(self.record)
        stages = self._stages(listener)
        with stages.measured("machines"):
            request = self.record.request
            self._machines = list(self._provider.up(request, self._ledger, listener.note))
        self._make_usable(stages)
        stages.keep(self.name)
        return self._machines

    def start(self, listener: StageListener) -> Sequence[ClusterMachine]:
        """Start the machines that were stopped, and return them when they can be used."""
        stages = self._stages(listener)
        with stages.measured("machines"):
            self._provider.start(self.name)
        self._machines = None
        self._make_usable(stages)
        self._tell_deadline()
        return self.machines()

    def stop(self) -> None:
        """Stop all machines; their disks stay, and cost something."""
        self._provider.stop(self.name)
        self._machines = None

    def down(self, notice: Callable[[str], None]) -> None:
        """Delete everything of the group, wait until it is gone, and forget its keys."""
        self._provider.down(self.name, self._ledger, notice)
        self._folder.forget()
        self._machines = None

    def end_machine(self, name: str) -> None:
        """End one machine for good."""
        self._provider.end_machine(self.name, name, self._ledger)
        self._machines = None

    def extend(self, deadline_at: float) -> None:
        """Set a later deadline, at the provider and on the machines.

        Args:
            deadline_at: Time in seconds since 1970 at which the machines end themselves.
        """
        self._provider.extend(self.name, deadline_at)
        request = replace(self.record.request, deadline_at=deadline_at)
        self.record = replace(self.record, request=request)
        self._folder.write(self.record)
        # Machines that are stopped are told when they are started.
        if any(machine.state == "running" for machine in self.machines()):
            self._tell_deadline()

    def _tell_deadline(self) -> None:
        # A machine whose user is root may have no sudo.
        command = (
            f'test ! -w {DEADLINE_FILE} || sudo() {{ "$@"; }};'
            f" {extension_command(self.record.request.deadline_at)}"
        )
        self.on_all(lambda host: host.run(command, what="setting the deadline"))

    def allow(self, network: str) -> None:
        """Let an address (in CIDR notation) reach the machines by ssh."""
        self._provider.allow(self.name, network)

    # ---- machines ----

    def machines(self) -> Sequence[ClusterMachine]:
        """Return the machines that have not ended, in the order of their names."""
        if self._machines is None:
            self._machines = list(self._provider.machines(self.name))
        return self._machines

    def hosts(self) -> list[SshHost]:
        """Return the machines that run, as hosts for ssh.

        Raises:
            UsageError: none of them runs.
        """
        running = [machine for machine in self.machines() if machine.state == "running"]
        if not running:
            raise UsageError(
                f"no machine of {self.name} runs; start them: slipstream cluster start {self.name}"
            )
        return [self._host(machine) for machine in running]

    def host(self, name: str) -> SshHost:
        """Return one machine that runs.

        Args:
            name: Name of the machine, such as "task0.NAME" or "task0".

        Raises:
            UsageError: there is no such machine, or it does not run.
        """
        hosts = self.hosts()
        for host in hosts:
            if name in (host.name, host.name.partition(".")[0]):
                return host
        names = ", ".join(host.name for host in hosts)
        raise UsageError(f"{self.name} has no machine {name!r} that runs; it has: {names}")

    def shell(self, host: SshHost) -> MachineShell:
        """Return the group's shell on a machine."""
        return MachineShell(host, self.name)

    def on_all(self, call: Callable[[SshHost], T]) -> list[T]:
        """Return the results of a function for all machines that run, called at the same time.

        Args:
            call: Function that gets a machine. Its first error is raised when all have ended.
        """
        hosts = self.hosts()
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            return list(pool.map(call, hosts))

    def _host(self, machine: ClusterMachine) -> SshHost:
        options = (
            f"IdentityFile={self._folder.key}",
            "IdentitiesOnly=yes",
            # Addresses pass from machine to machine, so keys belong to the machines.
            f"HostKeyAlias={machine.external_id}",
            "StrictHostKeyChecking=accept-new",
            f"UserKnownHostsFile={self._folder.known_hosts}",
        )
        login = f"{machine.login}@{machine.address}"
        return SshHost(name=machine.name, login=login, options=options)

    def _stages(self, listener: StageListener) -> CreationStages:
        place = (self._provider.name, self._provider.region)
        return CreationStages(self._ledger, place, listener)

    def _make_usable(self, stages: CreationStages) -> None:
        """Wait until all machines let us in, and let them reach one another."""
        with stages.measured("boot"):
            self.on_all(_wait_for_login)
        with stages.measured("set-up"):
            addresses = [machine.inner_address for machine in self.machines()]
            keys = self._folder.keys(INNER_KEY)
            self.on_all(lambda host: set_up_machine(host, addresses, keys))


def _wait_for_login(host: SshHost) -> None:
    until = time.monotonic() + BOOT_SECONDS
    while True:
        try:
            host.run("true", what="logging in", seconds=15.0)
            return
        except (PeerError, ConfigError, CommandFailedError):  # root may have to wait for its key
            if time.monotonic() >= until:
                raise
            time.sleep(RETRY_SECONDS)
