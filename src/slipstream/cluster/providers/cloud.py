"""What a cloud must be able to do, kind by kind, for the creation and deletion of clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slipstream.cluster.providers.protocol import (
    CLUSTER_TAG,
    DEADLINE_TAG,
    TOKEN_TAG,
    ClusterMachine,
    ClusterRequest,
    Found,
    MachineOffer,
)

# Identifiers of the parts that exist, by kind.
Ids = Mapping[str, str]
Tags = Mapping[str, str]

MACHINE = "machine"
# Number of the first machine that one call creates, and price of each of them in dollars an hour.
FIRST_TAG = "slipstream-first"
PRICE_TAG = "slipstream-price"
LOGIN_TAG = "slipstream-login"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterPlan:
    """A request whose defaults the cloud has filled in.

    Args:
        request: Request, with zone.
        image: Identifier of the image.
        login: User name for ssh.
        price_per_hour: Price of one machine in US dollars for one hour; None if it is not known.
        price_source: Sentence part that says where the price comes from.
        given: Identifiers of parts that existed before and stay, such as a network of the user.
        facts: Values of the image and of the type that the cloud needs later.
    """

    request: ClusterRequest
    image: str
    login: str
    price_per_hour: float | None
    price_source: str
    given: Ids
    facts: Mapping[str, Any]


class ClusterPart(Protocol):
    """One kind of resource that a cluster has once, such as its network."""

    @property
    def kind(self) -> str:
        """Name of the kind."""
        ...

    def is_wanted(self, plan: ClusterPlan) -> bool:
        """Return whether a plan has such a part that is created."""
        ...

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Create it with its tags in one call; return its identifier."""
        ...

    def complete(self, plan: ClusterPlan, ids: Ids) -> None:
        """Make the settings that the creation could not make, such as rules; can be repeated."""

    def listed(self, cluster: str = "") -> list[Found]:
        """Return those of a cluster, or with a tag of Slipstream, that are not gone."""
        ...

    def delete(self, found: Found) -> None:
        """Ask for a deletion; raises BusyError if it must be asked again."""


class Machines(Protocol):
    """The machines of a cloud."""

    def launch(self, plan: ClusterPlan, ids: Ids, indices: range, tags: Tags) -> Sequence[str]:
        """Create machines of successive numbers in one call, all or none; return identifiers."""
        ...

    def machines(self, cluster: str) -> list[ClusterMachine]:
        """Return the machines of a cluster that have not ended."""
        ...

    def listed(self, cluster: str = "") -> list[Found]:
        """Return machines of a cluster, or with a tag of Slipstream, that are not gone."""
        ...

    def delete(self, found: Found) -> None:
        """Ask for the end of a machine; raises BusyError if it must be asked again."""

    def stop(self, machines: Sequence[ClusterMachine]) -> None:
        """Ask machines to stop."""

    def start(self, machines: Sequence[ClusterMachine]) -> None:
        """Ask stopped machines to start."""


class CloudRegion(Protocol):
    """One region of a cloud."""

    @property
    def name(self) -> str:
        """Name of the provider."""
        ...

    @property
    def region(self) -> str:
        """Name of the region."""
        ...

    @property
    def parts(self) -> Sequence[ClusterPart]:
        """Kinds of parts in the order of their creation."""
        ...

    @property
    def machines(self) -> Machines:
        """Machines."""
        ...

    def plan(self, request: ClusterRequest) -> ClusterPlan:
        """Check a request and fill in its defaults; raises UsageError if it can never hold."""
        ...

    def offers(self, pattern: str) -> Sequence[MachineOffer]:
        """Return the types of machines whose name or GPU contains a text."""
        ...

    def images(self, pattern: str) -> Sequence[tuple[str, str]]:
        """Return identifiers and names of images whose name contains a text."""
        ...

    def allow(self, firewall: str, address: str) -> None:
        """Open a firewall for ssh from an address."""

    def set_deadline(self, found: Sequence[Found], deadline_at: float) -> None:
        """Set a deadline in the tags, and where the cloud itself ends machines, there too."""


def tags_of(cluster: str, token: str, deadline_at: float) -> dict[str, str]:
    """Return the tags of a resource.

    Args:
        cluster: Name of its cluster.
        token: Token of its entry in the ledger.
        deadline_at: Time in seconds since 1970 at which it should be gone.
    """
    return {CLUSTER_TAG: cluster, TOKEN_TAG: token, **deadline_tag(deadline_at)}


def deadline_tag(deadline_at: float) -> dict[str, str]:
    """Return the tag that says when a resource should be gone, in seconds since 1970."""
    return {DEADLINE_TAG: str(math.ceil(deadline_at))}


def found_by_tags(kind: str, external_id: str, tags: Tags, **facts: Any) -> Found:
    """Return a resource with the values of its tags.

    Args:
        kind: Kind of the resource.
        external_id: Provider's identifier.
        tags: Tags of the resource.
        facts: Further values; "index" is the number of a machine within its cluster.
    """
    deadline = tags.get(DEADLINE_TAG, "")
    cluster, token = tags.get(CLUSTER_TAG, ""), tags.get(TOKEN_TAG, "")
    index = facts.get("index")
    return Found(
        kind=kind,
        external_id=external_id,
        cluster=cluster,
        token=token if index is None or not token else machine_token(token, index),
        name=cluster if index is None else machine_name(cluster, index),
        deadline_at=float(deadline) if deadline.isdecimal() else 0.0,
        facts=facts,
    )


def machine_name(cluster: str, index: int) -> str:
    """Return the name of a machine from its number in the cluster, from 0 on."""
    return f"task{index}.{cluster}"


def machine_token(token: str, index: int) -> str:
    """Return the token of a machine's entry in the ledger.

    Args:
        token: Token that all machines of one call have as a tag.
        index: Number of the machine in the cluster.
    """
    return f"{token}.{index}"
