"""The engine of clouds: a provider makes machines, which are then hosts for ssh."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from slipstream.cluster.control.estimate import Estimate
from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.engines.layout import read_layout
from slipstream.cluster.engines.protocol import HeadState, JournalPart, RunProgress
from slipstream.cluster.engines.ssh import SshEngine
from slipstream.cluster.engines.ssh_host import SshHost, forget_host_key
from slipstream.cluster.providers.choice import cloud_provider
from slipstream.cluster.providers.protocol import (
    ClusterMachine,
    ClusterRequest,
    MachineOffer,
    Provider,
)
from slipstream.cluster.records import ResourceLedger, Store
from slipstream.cluster.spec import JobSpec
from slipstream.errors import ConfigError, PeerError, UsageError

BOOT_SECONDS = 600.0
RETRY_SECONDS = 2.0


class CloudEngine:
    """The engine of one cloud.

    Args:
        name: Name of the provider.
        spec: Description of the job, which has the region.
        store: Database of the ledger.
    """

    def __init__(self, name: str, spec: JobSpec, store: Store) -> None:
        self.name = name
        self._provider: Provider = cloud_provider(name, spec.cloud.region)
        self._ledger = ResourceLedger(store)
        self._machines: dict[str, ClusterMachine] = {}
        self._ssh = SshEngine(self._hosts)

    # ---- before anything is created ----

    def check(self, plan: RunPlan) -> None:
        """Refuse a job whose hosts are named, or whose machines cannot be chosen."""
        if plan.spec.ssh.hosts:
            raise UsageError(f"ssh.hosts are named, but {self.name} makes the hosts; name none")

    def estimate(self, spec: JobSpec) -> Estimate:
        """Return the machines of a job and the most that they cost.

        Raises:
            UsageError: no type of machine has the resources.
        """
        offer = self._choose(spec)
        assert spec.deadline is not None
        estimate = Estimate(
            offer=offer,
            num_machines=spec.hosts.max,
            is_spot=spec.cloud.spot,
            hours=spec.deadline / 3600.0,
        )
        return estimate

    def _choose(self, spec: JobSpec) -> MachineOffer:
        wanted, cloud = spec.resources, spec.cloud
        if cloud.instance_type:
            offers = [
                offer
                for offer in self._provider.offers(cloud.instance_type)
                if offer.instance_type == cloud.instance_type
            ]
        else:
            offers = [
                offer
                for offer in self._provider.offers(wanted.gpu)
                if offer.num_gpus >= wanted.gpus
                and offer.num_cores >= wanted.cpus
                and offer.memory_gib >= (wanted.memory or 0)
            ]
        if not offers:
            raise UsageError(
                f"{self.name} has no machine {cloud.instance_type or 'with these resources'} in"
                f" {self._provider.region}; slipstream cluster gpus --on {self.name} lists them"
            )
        return min(offers, key=lambda offer: _price(offer, is_spot=cloud.spot))

    # ---- machines ----

    def prepare(self, plan: RunPlan, progress: RunProgress) -> None:
        """Create the machines, wait until they let us in, and prepare them."""
        with progress.stage("machines"):
            self._bring_up(plan, progress)
        with progress.stage("boot"):
            self._wait_for_ssh(plan)
        self._ssh.prepare(plan, progress)

    def _bring_up(self, plan: RunPlan, progress: RunProgress) -> None:
        machines = self._provider.up(self._request(plan), self._ledger, progress.note)
        self._machines = {machine.name: machine for machine in machines}
        progress.fact("machines", [asdict(machine) for machine in machines])

    def _request(self, plan: RunPlan) -> ClusterRequest:
        spec = plan.spec
        cloud = spec.cloud
        deadline_at = plan.record.deadline_at
        assert deadline_at is not None
        return ClusterRequest(
            name=plan.run,
            num_machines=spec.hosts.max,
            instance_type=self._choose(spec).instance_type,
            public_key=plan.public_ssh_key,
            open_to=tuple(plan.record.facts.get("open_to", ())),
            deadline_at=deadline_at,
            image=cloud.image,
            is_spot=cloud.spot,
            system_disk_gib=cloud.disk,
            data_disk_gib=cloud.data_disk,
            zone=cloud.zone,
            network=cloud.network,
            shared_folder=cloud.shared_folder,
        )

    def _hosts(self, plan: RunPlan) -> Sequence[SshHost]:
        if not self._machines:
            listed = self._provider.machines(plan.run)
            self._machines = {machine.name: machine for machine in listed}
        options = (
            f"IdentityFile={plan.ssh_key_path}",
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=accept-new",
            f"UserKnownHostsFile={_known_hosts(plan)}",
            *plan.spec.ssh.options,
        )
        return [
            SshHost(name=machine.name, login=f"{machine.login}@{machine.address}", options=options)
            for machine in self._machines.values()
            if machine.state == "running"
        ]

    def _wait_for_ssh(self, plan: RunPlan) -> None:
        """Wait until each machine lets us in.

        Raises:
            PeerError: a machine does not within ten minutes.
        """
        for host in self._hosts(plan):
            until = time.monotonic() + BOOT_SECONDS
            while True:
                try:
                    host.run("true", what="logging in", seconds=15.0)
                    break
                except (PeerError, ConfigError):
                    if time.monotonic() >= until:
                        raise
                    time.sleep(RETRY_SECONDS)

    def replace_hosts(
        self, plan: RunPlan, lost: Sequence[str], progress: RunProgress
    ) -> Sequence[str]:
        """Make machines in place of lost ones, and bring them into the run."""
        self._end_machines(plan, lost)
        new = self._make_new(plan, progress)
        self._ssh.prepare_new(plan, new, progress)
        if read_layout(plan).head in lost:
            self._ssh.place_head_anew(plan, progress)
        return self._ssh.take_in(plan, lost, new, progress)

    def _make_new(self, plan: RunPlan, progress: RunProgress) -> list[str]:
        """Make the machines that are missing; return their names."""
        before = {host.name for host in self._hosts(plan)}
        self._bring_up(plan, progress)
        self._wait_for_ssh(plan)
        return [name for name in self._machines if name not in before]

    def _end_machines(self, plan: RunPlan, names: Sequence[str]) -> None:
        """End machines, unless another client has done so; their successors have other keys."""
        self._hosts(plan)
        for name in names:
            with contextlib.suppress(UsageError):
                self._provider.end_machine(plan.run, name, self._ledger)
            machine = self._machines.pop(name, None)
            if machine is not None:
                forget_host_key(_known_hosts(plan), machine.address)

    # ---- the run itself: as on any ssh hosts ----

    def submit(self, plan: RunPlan) -> None:
        """Start the head and the host daemons."""
        self._ssh.submit(plan)

    def read_journal(self, plan: RunPlan, position: str, seconds: float) -> JournalPart:
        """Return new lines of the journal."""
        return self._ssh.read_journal(plan, position, seconds)

    def head_state(self, plan: RunPlan) -> HeadState:
        """Return whether the head runs."""
        return self._ssh.head_state(plan)

    def restart_head(
        self, plan: RunPlan, progress: RunProgress, *, host_is_lost: bool
    ) -> Sequence[str]:
        """Start the head again, on a new machine if no other one is left."""
        if host_is_lost:
            self._end_machines(plan, [read_layout(plan).head])
            self._machines.clear()  # others may be gone, too
            if not self._hosts(plan):
                self._ssh.prepare_new(plan, self._make_new(plan, progress), progress)
                return self._ssh.place_head_anew(plan, progress)
        return self._ssh.restart_head(plan, progress, host_is_lost=host_is_lost)

    def cancel(self, plan: RunPlan) -> None:
        """Send SIGTERM to the head."""
        self._ssh.cancel(plan)

    def fetch(self, plan: RunPlan, patterns: Sequence[str], folder: Path) -> Sequence[str]:
        """Copy the outputs of the head's host."""
        return self._ssh.fetch(plan, patterns, folder)

    def release(self, plan: RunPlan) -> None:
        """Delete everything that was created for the run, unless the job keeps its machines."""
        if plan.spec.cloud.keep:
            self._ssh.release(plan)
            return
        self._provider.down(plan.run, self._ledger, lambda _: None)

    def shell(self, plan: RunPlan, host: str) -> list[str]:
        """Return the ssh command of a machine."""
        return self._ssh.shell(plan, host)

    def path_on_host(self, plan: RunPlan, path: str) -> str:
        """Return the absolute path on the machines."""
        return self._ssh.path_on_host(plan, path)


def _known_hosts(plan: RunPlan) -> Path:
    return plan.folder / "known_hosts"


def _price(offer: MachineOffer, *, is_spot: bool) -> float:
    price = offer.spot_price if is_spot else offer.price
    return float("inf") if price is None else price
