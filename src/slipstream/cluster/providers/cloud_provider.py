"""A provider over one region of a cloud: what all clouds have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from slipstream.cluster.providers.cloud import MACHINE, CloudRegion
from slipstream.cluster.providers.creation import Creation
from slipstream.cluster.providers.deletion import delete_cluster, deletion_order
from slipstream.cluster.providers.pace import Pace
from slipstream.cluster.providers.protocol import (
    ClusterMachine,
    ClusterRequest,
    Found,
    MachineOffer,
    Notice,
)
from slipstream.cluster.records import ResourceLedger
from slipstream.errors import SlipstreamError, UsageError


class CloudProvider:
    """A provider of machines; see `Provider`.

    Args:
        cloud: Region of a cloud.
        pace: Times of waiting (default `Pace()`).
        address_of: Function that returns the address of a machine for ssh (default None: the
            address that the cloud states). Tests put hosts of their own in the place of machines.
    """

    def __init__(
        self,
        cloud: CloudRegion,
        pace: Pace | None = None,
        address_of: Callable[[ClusterMachine], str] | None = None,
    ) -> None:
        self._cloud = cloud
        self._pace = pace or Pace()
        self._address_of = address_of

    @property
    def name(self) -> str:
        """Name of the provider."""
        return self._cloud.name

    @property
    def region(self) -> str:
        """Name of the region."""
        return self._cloud.region

    @property
    def deletion_order(self) -> Sequence[str]:
        """Kinds of resources in the order of their deletion."""
        return deletion_order(self._cloud)

    def offers(self, pattern: str = "") -> Sequence[MachineOffer]:
        """Return the types of machines whose name or GPU contains a text."""
        return self._cloud.offers(pattern)

    def images(self, pattern: str = "") -> Sequence[tuple[str, str]]:
        """Return identifiers and names of the images whose name contains a text."""
        return self._cloud.images(pattern)

    def up(
        self, request: ClusterRequest, ledger: ResourceLedger, notice: Notice
    ) -> Sequence[ClusterMachine]:
        """Create all parts of a cluster that do not exist; see `Provider.up`.

        If the cloud refuses while the cluster has no machine, what was made is deleted again.
        """
        creation = Creation(self._cloud, ledger, notice, self._pace)
        with ledger.alone(request.name):
            try:
                return self._addressed(creation.run(request))
            except SlipstreamError:
                self._clean_up(request.name, ledger, notice)
                raise

    def machines(self, cluster: str) -> Sequence[ClusterMachine]:
        """Return the machines of a cluster that have not ended, in the order of their names."""
        return self._addressed(self._cloud.machines.machines(cluster))

    def stop(self, cluster: str) -> None:
        """Stop the machines of a cluster; their disks stay.

        Raises:
            UsageError: a machine can be taken away, so it cannot be stopped, only ended.
        """
        machines = self.machines(cluster)
        spot = [machine.name for machine in machines if machine.is_spot]
        if spot:
            raise UsageError(
                f"{', '.join(spot)} cannot be stopped, because they may be taken away; end them"
                f" with: slipstream cluster down {cluster}"
            )
        running = [machine for machine in machines if machine.state in ("starting", "running")]
        if running:
            self._cloud.machines.stop(running)
        self._pace.until(lambda: self._are_all(cluster, "stopped"), f"{cluster} is stopped")

    def start(self, cluster: str) -> None:
        """Start the stopped machines of a cluster; returns when they are running."""

        def is_running() -> bool:
            stopped = [item for item in self.machines(cluster) if item.state == "stopped"]
            if stopped:
                self._cloud.machines.start(stopped)
            return self._are_all(cluster, "running")

        self._pace.until(is_running, f"the machines of {cluster} run")

    def end_machine(self, cluster: str, name: str, ledger: ResourceLedger) -> None:
        """End one machine for good, such as one that is broken, and wait until it has ended.

        Raises:
            UsageError: the cluster has no such machine.
        """
        machines = self._cloud.machines
        listed = machines.listed(cluster)
        tokens = {found.token for found in listed if found.name == name}
        entries = [entry for entry in ledger.resources(cluster) if entry.name == name]
        # A machine that the provider took away is in the ledger only.
        if not tokens and not any(entry.kind == MACHINE for entry in entries):
            names = ", ".join(sorted(found.name for found in listed)) or "none"
            raise UsageError(f"{cluster} has no machine {name!r}; its machines: {names}")

        def is_gone() -> bool:
            remaining = [found for found in machines.listed(cluster) if found.name == name]
            for found in remaining:
                self._pace.retried(lambda found=found: machines.delete(found))
            return not remaining

        with ledger.alone(cluster):
            self._pace.until(is_gone, f"{name} has ended")
            for entry in entries:
                if entry.kind == MACHINE:
                    ledger.released(entry.token)

    def down(self, cluster: str, ledger: ResourceLedger, notice: Notice) -> None:
        """Delete everything of a cluster and wait until it is gone."""
        with ledger.alone(cluster):
            delete_cluster(self._cloud, cluster, ledger, notice, self._pace)

    def found(self) -> Sequence[Found]:
        """Return all resources in the region that have a tag of Slipstream."""
        parts = [found for part in self._cloud.parts for found in part.listed()]
        return [*parts, *self._cloud.machines.listed()]

    def delete(self, found: Found) -> None:
        """Ask for the deletion of one resource; raises BusyError if it must be asked again."""
        if found.kind == MACHINE:
            self._cloud.machines.delete(found)
            return
        (part,) = (part for part in self._cloud.parts if part.kind == found.kind)
        part.delete(found)

    def allow(self, cluster: str, address: str) -> None:
        """Let an address (in CIDR notation) reach the machines by ssh.

        Raises:
            UsageError: there is no such cluster.
        """
        (firewalls,) = (part for part in self._cloud.parts if part.kind == "firewall")
        found = firewalls.listed(cluster)
        if not found:
            raise UsageError(f"{self.name} has no cluster {cluster!r} in {self.region}")
        self._cloud.allow(found[0].external_id, address)

    def extend(self, cluster: str, deadline_at: float) -> None:
        """Set a later deadline (in seconds since 1970) on all resources of a cluster.

        Raises:
            UsageError: the new deadline is earlier.
        """
        found = [item for item in self.found() if item.cluster == cluster]
        latest = max((item.deadline_at for item in found), default=0.0)
        if deadline_at < latest:
            raise UsageError(
                f"the deadline of {cluster} can only be set later: it is {latest:.0f}, and"
                f" {deadline_at:.0f} is earlier; delete the cluster instead"
            )
        self._cloud.set_deadline(found, deadline_at)

    def _are_all(self, cluster: str, state: str) -> bool:
        machines = self._cloud.machines.machines(cluster)
        return all(machine.state == state for machine in machines)

    def _addressed(self, machines: Sequence[ClusterMachine]) -> list[ClusterMachine]:
        if self._address_of is None:
            return list(machines)
        return [replace(machine, address=self._address_of(machine)) for machine in machines]

    def _clean_up(self, cluster: str, ledger: ResourceLedger, notice: Notice) -> None:
        """Delete what a refused creation has made, if no machine needs it."""
        if not ledger.resources(cluster):
            return
        try:
            if self._cloud.machines.listed(cluster):
                return
            delete_cluster(self._cloud, cluster, ledger, notice, self._pace)
        except SlipstreamError as error:
            notice(
                f"parts of {cluster} may be left: {error}; delete them with: slipstream cluster gc"
            )
