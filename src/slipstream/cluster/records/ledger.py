"""The ledger: every resource that a provider was asked to create, written before it was asked.

A resource has a token, which is also a tag of the resource at the provider. If a process dies
between `intend` and `created`, the provider is asked by the token whether the resource exists.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from sqlalchemy import select

from slipstream.cluster.records.lock import locked
from slipstream.cluster.records.store import ResourceRow, Store

ResourceState = Literal["intended", "created", "released"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """A resource as the ledger knows it.

    Args:
        token: Unique text that is also a tag of the resource.
        cluster: Name of the cluster that it belongs to.
        provider: Name of the provider, such as "aws".
        region: Region of the provider.
        kind: Kind of the resource, such as "machine", "network" or "disk".
        name: Name of the resource within its cluster, such as "task0.NAME".
        external_id: Provider's identifier; "" until it is known.
        state: "intended", "created" or "released".
        price_per_hour: Price in US dollars for one hour, 0 if it is free.
        facts: Further values that are no secret, such as the instance type.
        intended_at: Time of the entry in seconds since 1970.
        created_at: Time of its creation in seconds since 1970, or None.
        released_at: Time of its release in seconds since 1970, or None.
    """

    token: str
    cluster: str
    provider: str
    region: str
    kind: str
    name: str
    external_id: str
    state: str
    price_per_hour: float
    facts: Mapping[str, Any]
    intended_at: float
    created_at: float | None
    released_at: float | None

    def cost(self, now: float) -> float:
        """Return the price in US dollars of its time from creation to release, or to `now`."""
        if self.created_at is None:
            return 0.0
        end = self.released_at if self.released_at is not None else now
        return max(0.0, end - self.created_at) / 3600.0 * self.price_per_hour


class ResourceLedger:
    """The resources in a store.

    Args:
        store: Database that has the resources.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def alone(self, cluster: str) -> AbstractContextManager[None]:
        """Return a lock, so that one process at a time creates or deletes parts of a cluster.

        Args:
            cluster: Name of the cluster.
        """
        folder = self._store.home / "locks"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return locked(folder / f"{quote(cluster, safe='')}.lock")

    def intend(
        self,
        *,
        token: str,
        cluster: str,
        place: tuple[str, str],
        kind: str,
        name: str,
        price_per_hour: float = 0.0,
        facts: Mapping[str, Any] | None = None,
    ) -> Resource:
        """Write down that a resource will be created; return the entry that exists, if one does.

        Args:
            token: Unique text that is also a tag of the resource.
            cluster: Name of the cluster.
            place: Names of the provider and of its region.
            kind: Kind of the resource.
            name: Name of the resource within its cluster.
            price_per_hour: Price in US dollars for one hour (default 0).
            facts: Further values that are no secret (default none).
        """
        with self._store.transaction() as session:
            row = session.get(ResourceRow, token)
            if row is None:
                row = ResourceRow(
                    token=token,
                    cluster=cluster,
                    provider=place[0],
                    region=place[1],
                    kind=kind,
                    name=name,
                    external_id="",
                    state="intended",
                    price_per_hour=price_per_hour,
                    facts=dict(facts or {}),
                    intended_at=time.time(),
                )
                session.add(row)
            return _resource(row)

    def created(self, token: str, external_id: str, facts: Mapping[str, Any] | None = None) -> None:
        """Write down that a resource exists.

        Args:
            token: Token of its entry.
            external_id: Provider's identifier.
            facts: Values to add to those of the entry (default none).
        """
        with self._store.transaction() as session:
            row = session.get_one(ResourceRow, token)
            row.external_id = external_id
            row.state = "created"
            row.created_at = row.created_at or time.time()
            row.facts = {**row.facts, **(facts or {})}

    def released(self, token: str) -> None:
        """Write down that a resource no longer exists."""
        with self._store.transaction() as session:
            row = session.get_one(ResourceRow, token)
            if row.state != "released":
                row.state = "released"
                row.released_at = time.time()

    def resources(self, cluster: str | None = None, *, all_states: bool = False) -> list[Resource]:
        """Return resources in the order of their entries.

        Args:
            cluster: Name of the cluster whose resources are returned (default None: all clusters).
            all_states: Whether released resources are returned too (default False).
        """
        query = select(ResourceRow).order_by(ResourceRow.intended_at)
        if cluster is not None:
            query = query.where(ResourceRow.cluster == cluster)
        if not all_states:
            query = query.where(ResourceRow.state != "released")
        with self._store.transaction() as session:
            return [_resource(row) for row in session.scalars(query)]


def _resource(row: ResourceRow) -> Resource:
    return Resource(
        token=row.token,
        cluster=row.cluster,
        provider=row.provider,
        region=row.region,
        kind=row.kind,
        name=row.name,
        external_id=row.external_id,
        state=row.state,
        price_per_hour=row.price_per_hour,
        facts=row.facts,
        intended_at=row.intended_at,
        created_at=row.created_at,
        released_at=row.released_at,
    )
