"""What clusters cost by the ledger, beside what was estimated before."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.cluster.groups.group_record import all_groups
from slipstream.cluster.records import Resource, ResourceLedger, RunLog, Store


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterCost:
    """The cost of one cluster in US dollars.

    Args:
        cluster: Name of the cluster: that of a group, or of a run with its number.
        provider: Name of the provider.
        region: Region of the provider.
        machine_hours: Hours for which machines have existed, added up.
        spent: Cost so far.
        per_hour: Price for one hour of what exists now.
        most: Largest cost that was estimated before the creation; None if it is not known.
        num_open: Number of resources that exist, or may exist.
        has_prices: Whether the prices of all its machines are known.
    """

    cluster: str
    provider: str
    region: str
    machine_hours: float
    spent: float
    per_hour: float
    most: float | None
    num_open: int
    has_prices: bool


def cluster_costs(store: Store, now: float, name: str = "") -> list[ClusterCost]:
    """Return the cost of each cluster, in the order of their creation.

    Args:
        store: Database of the records.
        now: Present time in seconds since 1970.
        name: Name of a group, or of a run, to which the list is limited (default "": all).
    """
    by_cluster: dict[tuple[str, str, str], list[Resource]] = {}
    for entry in ResourceLedger(store).resources(all_states=True):
        if not name or entry.cluster == name or _run_name(entry.cluster) == name:
            key = (entry.cluster, entry.provider, entry.region)
            by_cluster.setdefault(key, []).append(entry)
    estimates = _estimates(store)
    return [_cost(key, entries, now, estimates.get(key[0])) for key, entries in by_cluster.items()]


def _cost(
    key: tuple[str, str, str], entries: list[Resource], now: float, most: float | None
) -> ClusterCost:
    open_entries = [entry for entry in entries if entry.state != "released"]
    machines = [entry for entry in entries if entry.kind == "machine" and entry.created_at]
    seconds = [(entry.released_at or now) - (entry.created_at or now) for entry in machines]
    return ClusterCost(
        cluster=key[0],
        provider=key[1],
        region=key[2],
        machine_hours=sum(seconds) / 3600.0,
        spent=sum(entry.cost(now) for entry in entries),
        per_hour=sum(entry.price_per_hour for entry in open_entries if entry.state == "created"),
        most=most,
        num_open=len(open_entries),
        has_prices=all(machine.price_per_hour > 0.0 for machine in machines),
    )


def _estimates(store: Store) -> dict[str, float | None]:
    """Return the largest cost that was estimated for each cluster."""
    estimates = {group.name: group.most for group in all_groups(store.home)}
    for run in RunLog(store).all():
        estimate = run.facts.get("estimate")
        if estimate:
            offer = estimate["offer"]
            price = offer["spot_price" if estimate["is_spot"] else "price"]
            cost = None if price is None else price * estimate["num_machines"] * estimate["hours"]
            estimates[f"{run.name}-{run.number}"] = cost
    return estimates


def _run_name(cluster: str) -> str:
    """Return the name of the run of a cluster, whose name ends in the run's number."""
    name, _, number = cluster.rpartition("-")
    return name if number.isdecimal() else ""
