"""The interface of providers: clouds that create machines and everything that machines need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slipstream.cluster.records import ResourceLedger

# Tags of every resource. CLUSTER_TAG marks all resources of Slipstream, so `gc` finds those that no
# ledger has.
CLUSTER_TAG = "slipstream-cluster"
TOKEN_TAG = "slipstream-token"
DEADLINE_TAG = "slipstream-deadline"

Notice = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterRequest:
    """The cluster to create, or to complete if parts of it exist.

    Args:
        name: Name of the cluster: lower-case letters, digits and hyphens, 1 to 40 characters; it
            begins with a letter.
        num_machines: Number of machines, 1 or more.
        instance_type: Provider's name of the type of machine.
        public_key: Public ssh key of the run, in OpenSSH's format.
        open_to: Addresses that may reach the machines by ssh, in CIDR notation: the user's own.
        deadline_at: Time in seconds since 1970 at which the machines end themselves.
        image: Provider's identifier or name of the image; "" (the default) for the provider's
            newest Ubuntu image.
        is_spot: Whether machines may be taken away for a lower price (default False).
        system_disk_gib: Size of the system disk in GiB (default 100).
        data_disk_gib: Size of a further disk of each machine in GiB (default 0: none).
        zone: Name of the zone; "" (the default) for the provider's choice.
        network: Name of the virtual network; "" (the default) for one of the cluster's own.
        shared_folder: Whether a network file system is created and mounted by all machines (default
            False).
        as_root: Whether the user for ssh is root (default False: the user of the image, who may
            call sudo). Only keys are let in.
    """

    name: str
    num_machines: int
    instance_type: str
    public_key: str
    open_to: tuple[str, ...]
    deadline_at: float
    image: str = ""
    is_spot: bool = False
    system_disk_gib: int = 100
    data_disk_gib: int = 0
    zone: str = ""
    network: str = ""
    shared_folder: bool = False
    as_root: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterMachine:
    """A machine of a cluster.

    Args:
        name: Name within the cluster, such as "task0.NAME".
        external_id: Provider's identifier.
        state: "starting", "running", "stopped", "ending" or "ended".
        address: Address at which the client reaches it by ssh; "" until it has one.
        inner_address: Address at which the other machines reach it; "" until it has one.
        login: User name for ssh.
        price_per_hour: Price in US dollars for one hour when it was created; 0 if it was not known.
        is_spot: Whether the provider may take it away.
    """

    name: str
    external_id: str
    state: str
    address: str
    inner_address: str
    login: str
    price_per_hour: float
    is_spot: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineOffer:
    """A type of machine that can be rented; prices are in US dollars for one hour.

    Args:
        instance_type: Provider's name of the type.
        num_gpus: Number of GPUs of one machine.
        gpu: Name of the GPUs, or "".
        num_cores: Number of virtual CPUs.
        memory_gib: Memory in GiB.
        price: Price on demand, or None if it is not known.
        spot_price: Present price of a machine that may be taken away, or None.
        price_source: Sentence part that says where the prices come from, or why one is not known.
    """

    instance_type: str
    num_gpus: int
    gpu: str
    num_cores: int
    memory_gib: float
    price: float | None
    spot_price: float | None
    price_source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A resource that the provider lists with a tag of Slipstream.

    Args:
        kind: Kind of the resource, such as "machine".
        external_id: Provider's identifier.
        cluster: Name of its cluster, from its tag.
        token: Token of its entry in the ledger, from its tag; "" without that tag. Machines that
            one call created share the tag, so the token of a machine ends in "." and its number.
        name: Name within its cluster.
        deadline_at: Time in seconds since 1970 at which it should be gone, from its tag; 0 without.
        facts: Further values to show (default none).
    """

    kind: str
    external_id: str
    cluster: str
    token: str
    name: str
    deadline_at: float
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Provider(Protocol):
    """The interface of a provider in one region; every method blocks and can be called again."""

    @property
    def name(self) -> str:
        """Name of the provider, such as "aws"."""
        ...

    @property
    def region(self) -> str:
        """Name of the region."""
        ...

    def offers(self, pattern: str = "") -> Sequence[MachineOffer]:
        """Return the types of machines whose name or GPU contains a text."""
        ...

    def images(self, pattern: str = "") -> Sequence[tuple[str, str]]:
        """Return identifiers and names of the images whose name contains a text."""
        ...

    def up(
        self, request: ClusterRequest, ledger: ResourceLedger, notice: Notice
    ) -> Sequence[ClusterMachine]:
        """Create all parts of a cluster that do not exist; return its machines, which are running.

        Machines that have ended are replaced. The ledger has each part before it is created.

        Args:
            request: Cluster to create.
            ledger: Ledger that gets the entries.
            notice: Function that is called with a sentence for each part that is made.

        Raises:
            UsageError: the provider refuses the request for good, as for an unknown instance type.
            QuotaError: the provider has no such machine left, or a quota is used up.
        """
        ...

    def machines(self, cluster: str) -> Sequence[ClusterMachine]:
        """Return the machines of a cluster that have not ended, in the order of their names."""
        ...

    def stop(self, cluster: str) -> None:
        """Stop the machines of a cluster; their disks stay."""

    def start(self, cluster: str) -> None:
        """Start the stopped machines of a cluster; returns when they are running."""

    def end_machine(self, cluster: str, name: str, ledger: ResourceLedger) -> None:
        """End one machine for good, such as one that is broken."""

    def down(self, cluster: str, ledger: ResourceLedger, notice: Notice) -> None:
        """Delete everything of a cluster and wait until it is gone."""

    def found(self) -> Sequence[Found]:
        """Return all resources in the region that have a tag of Slipstream."""
        ...

    def allow(self, cluster: str, address: str) -> None:
        """Let an address (in CIDR notation) reach the machines by ssh."""

    def extend(self, cluster: str, deadline_at: float) -> None:
        """Set a later deadline (in seconds since 1970) on all resources of a cluster.

        Machines that end themselves by a timer of their own must be told too, by ssh: with the
        command that `extension_command` returns.
        """

    def delete(self, found: Found) -> None:
        """Ask for the deletion of one resource of `found`.

        Raises:
            BusyError: another resource uses it, or it is in change; ask again.
        """

    @property
    def deletion_order(self) -> Sequence[str]:
        """Kinds of resources in an order in which none is needed by a later one."""
        ...
