"""The deletion of a cluster's resources, in an order in which none is needed by a later one."""

from __future__ import annotations

from collections.abc import Callable

from slipstream.cluster.providers.cloud import MACHINE, CloudRegion
from slipstream.cluster.providers.pace import BusyError, Pace
from slipstream.cluster.providers.protocol import Found, Notice
from slipstream.cluster.records import Resource, ResourceLedger


def delete_cluster(
    cloud: CloudRegion, cluster: str, ledger: ResourceLedger, notice: Notice, pace: Pace
) -> None:
    """Delete everything of a cluster and wait until it is gone; close its entries in the ledger.

    Args:
        cloud: Region of a cloud.
        cluster: Name of the cluster.
        ledger: Ledger that has the entries.
        notice: Function that is called with a sentence for each part that is gone.
        pace: Times of waiting.

    Raises:
        BusyError: a resource could not be deleted within the limit of `pace`.
    """
    entries = _open_entries(cloud, cluster, ledger)
    # A resource that an interrupted process has just created may not be listed yet.
    if any(entry.state == "intended" for entry in entries):
        pace.settled(lambda: all(_has_arrived(cloud, cluster, entry) for entry in entries))
    _empty(cloud.machines.listed, cloud.machines.delete, cluster, pace, notice)
    for part in reversed(cloud.parts):
        _empty(part.listed, part.delete, cluster, pace, notice)
    for entry in entries:
        ledger.released(entry.token)


def deletion_order(cloud: CloudRegion) -> list[str]:
    """Return the kinds of resources in the order of their deletion."""
    return [MACHINE, *(part.kind for part in reversed(cloud.parts))]


def _empty(
    listed: Callable[[str], list[Found]],
    delete: Callable[[Found], None],
    cluster: str,
    pace: Pace,
    notice: Notice,
) -> None:
    """Delete resources of one kind until none is listed."""
    reasons: dict[str, str] = {}
    present: set[str] = set()

    def is_empty() -> bool:
        remaining = {found.external_id: found for found in listed(cluster)}
        for gone in sorted(present - set(remaining)):
            notice(f"{gone} deleted")
        present.clear()
        present.update(remaining)
        for external_id, found in remaining.items():
            reasons[external_id] = "it is still listed"
            try:
                delete(found)
            except BusyError as error:
                reasons[external_id] = str(error)
        return not remaining

    try:
        pace.until(is_empty, f"the resources of {cluster} are gone")
    except BusyError as error:
        left = "; ".join(f"{key}: {reasons[key]}" for key in sorted(present))
        raise BusyError(f"{error}. Left are {left}") from error


def _open_entries(cloud: CloudRegion, cluster: str, ledger: ResourceLedger) -> list[Resource]:
    place = (cloud.name, cloud.region)
    return [entry for entry in ledger.resources(cluster) if (entry.provider, entry.region) == place]


def _has_arrived(cloud: CloudRegion, cluster: str, entry: Resource) -> bool:
    lists = [
        cloud.machines.listed,
        *(part.listed for part in cloud.parts if part.kind == entry.kind),
    ]
    tokens = {found.token for listed in lists for found in listed(cluster)}
    return entry.state != "intended" or entry.token in tokens
