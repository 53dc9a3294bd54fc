"""The creation of a cluster, part by part: what exists is found by its tag and never made twice.

Each part is looked for, then entered in the ledger, then created with the token of that entry as a
tag. So a process may die anywhere: the next one finds the part by its tag, or the entry that has no
part yet, and goes on from there.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Sequence

from slipstream.cluster.providers.cloud import (
    FIRST_TAG,
    MACHINE,
    PRICE_TAG,
    CloudRegion,
    ClusterPart,
    ClusterPlan,
    Ids,
    machine_name,
    machine_token,
    tags_of,
)
from slipstream.cluster.providers.pace import Pace
from slipstream.cluster.providers.protocol import ClusterMachine, ClusterRequest, Found, Notice
from slipstream.cluster.records import Resource, ResourceLedger
from slipstream.errors import QuotaError, UsageError

# Calls that create machines, for one cluster: a spot machine may end while another one starts.
MAX_LAUNCHES = 10

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")


class Creation:
    """The creation of one cluster in one region of a cloud.

    Args:
        cloud: Region of a cloud.
        ledger: Ledger that gets an entry for each part.
        notice: Function that is called with a sentence for each part that is made.
        pace: Times of waiting.
    """

    def __init__(
        self, cloud: CloudRegion, ledger: ResourceLedger, notice: Notice, pace: Pace
    ) -> None:
        self._cloud = cloud
        self._ledger = ledger
        self._notice = notice
        self._pace = pace

    def run(self, request: ClusterRequest) -> list[ClusterMachine]:
        """Create all parts that do not exist; return the machines, which are running.

        Raises:
            UsageError: the cloud refuses the request for good.
            QuotaError: the cloud has no such machine left, or a quota is used up.
        """
        _check(request)
        plan = self._cloud.plan(request)
        if plan.price_per_hour is None:
            self._notice(f"the cost is not counted: {plan.price_source}")
        ids = dict(plan.given)
        for part in self._cloud.parts:
            if part.is_wanted(plan):
                ids[part.kind] = self._ensure(part, plan, ids)
                self._pace.retried(lambda part=part: part.complete(plan, ids))
        return self._ensure_machines(plan, ids)

    def _ensure(self, part: ClusterPart, plan: ClusterPlan, ids: Ids) -> str:
        """Return the identifier of a part, which is created if it does not exist."""
        cluster = plan.request.name
        entries = self._entries(cluster, part.kind)
        is_open = any(entry.state == "intended" for entry in entries)
        found = (
            self._pace.settled(lambda: part.listed(cluster)) if is_open else part.listed(cluster)
        )
        if found:
            return self._record(found[0])
        token = self._token(cluster, part.kind, entries)
        self._intend(token, cluster, part.kind, cluster, 0.0)
        tags = tags_of(cluster, token, plan.request.deadline_at)
        external_id = self._pace.retried(lambda: part.create(plan, ids, tags))
        self._ledger.created(token, external_id)
        self._notice(f"{part.kind.replace('_', ' ')} {external_id} created")
        self._pace.until(lambda: part.listed(cluster) or None, f"the cloud lists {external_id}")
        return external_id

    def _ensure_machines(self, plan: ClusterPlan, ids: Ids) -> list[ClusterMachine]:
        """Return running machines under all names; those that do not exist are created."""
        request, launches = plan.request, 0
        self._release_lost(request)

        def ready() -> list[ClusterMachine] | None:
            nonlocal launches
            machines = self._cloud.machines.machines(request.name)
            for indices in _ranges(_missing(request, machines)):
                launches += 1
                self._launch(plan, ids, indices, launches)
            stopped = [machine for machine in machines if machine.state == "stopped"]
            if stopped:
                self._cloud.machines.start(stopped)
            chosen = _chosen(request, machines)
            is_ready = all(machine.state == "running" and machine.address for machine in chosen)
            return chosen if len(chosen) == request.num_machines and is_ready else None

        machines = self._pace.until(ready, f"all machines of {request.name} run")
        for found in self._cloud.machines.listed(request.name):
            self._record(found)
        return machines

    def _release_lost(self, request: ClusterRequest) -> None:
        """Close the entries of machines that have ended; wait for those that may just appear."""
        entries = self._entries(request.name, MACHINE)
        is_open = any(entry.state == "intended" for entry in entries)
        listed = self._cloud.machines.listed
        found = (
            self._pace.settled(lambda: listed(request.name)) if is_open else listed(request.name)
        )
        for machine in found:
            self._record(machine)
        tokens = {machine.token for machine in found}
        for entry in entries:
            if entry.state == "created" and entry.token not in tokens:
                self._ledger.released(entry.token)

    def _launch(self, plan: ClusterPlan, ids: Ids, indices: range, launches: int) -> None:
        cluster, price = plan.request.name, plan.price_per_hour or 0.0
        if launches > MAX_LAUNCHES:
            raise QuotaError(
                f"machines of {cluster} ended while others started, {MAX_LAUNCHES} times; ask for"
                " machines that are not taken away, or another type or zone"
            )
        token = self._open_token(cluster, indices) or _new_token(cluster, MACHINE)
        for index in indices:
            name = machine_name(cluster, index)
            self._intend(machine_token(token, index), cluster, MACHINE, name, price)
        tags = {
            **tags_of(cluster, token, plan.request.deadline_at),
            FIRST_TAG: str(indices.start),
            PRICE_TAG: f"{price:g}",
        }
        launch = self._cloud.machines.launch
        external_ids = self._pace.retried(lambda: launch(plan, ids, indices, tags))
        for index, external_id in zip(indices, external_ids, strict=True):
            self._ledger.created(machine_token(token, index), external_id)
        self._notice(f"{len(indices)} machines of type {plan.request.instance_type} created")
        self._pace.settled(lambda: set(external_ids) <= self._listed_ids(cluster))

    def _listed_ids(self, cluster: str) -> set[str]:
        return {found.external_id for found in self._cloud.machines.listed(cluster)}

    def _open_token(self, cluster: str, indices: range) -> str | None:
        """Return the token of an earlier call for the same machines that may not have arrived."""
        wanted = {machine_name(cluster, index) for index in indices}
        groups: dict[str, set[str]] = {}
        for entry in self._entries(cluster, MACHINE):
            if entry.state == "intended":
                groups.setdefault(entry.token.rpartition(".")[0], set()).add(entry.name)
        return next((token for token, names in groups.items() if names == wanted), None)

    def _entries(self, cluster: str, kind: str) -> list[Resource]:
        place = (self._cloud.name, self._cloud.region)
        return [
            entry
            for entry in self._ledger.resources(cluster)
            if entry.kind == kind and (entry.provider, entry.region) == place
        ]

    def _token(self, cluster: str, kind: str, entries: Sequence[Resource]) -> str:
        """Return the token of an open entry, or a new one; close entries of what is gone."""
        for entry in entries:
            if entry.state == "created":
                self._ledger.released(entry.token)
        tokens = [entry.token for entry in entries if entry.state == "intended"]
        return tokens[0] if tokens else _new_token(cluster, kind)

    def _intend(self, token: str, cluster: str, kind: str, name: str, price: float) -> None:
        place = (self._cloud.name, self._cloud.region)
        self._ledger.intend(
            token=token, cluster=cluster, place=place, kind=kind, name=name, price_per_hour=price
        )

    def _record(self, found: Found) -> str:
        """Enter a resource that exists, which this ledger may not know; return its identifier."""
        price = float(found.facts.get("price", 0.0))
        token = found.token or f"{found.cluster}-{found.kind}-{found.external_id}"
        self._intend(token, found.cluster, found.kind, found.name, price)
        self._ledger.created(token, found.external_id)
        return found.external_id


def _check(request: ClusterRequest) -> None:
    """Refuse a request that no cloud can fulfil."""
    if not _NAME.fullmatch(request.name):
        raise UsageError(
            f"{request.name!r} is no name for a cluster; choose one of up to 40 lower-case letters,"
            " digits and hyphens, which begins with a letter"
        )
    if request.num_machines < 1:
        raise UsageError(f"{request.num_machines} machines are asked for; ask for 1 or more")
    if request.deadline_at <= time.time():
        raise UsageError(
            f"the deadline of {request.name} has passed"
            f" {time.time() - request.deadline_at:.0f} s ago; set a later one"
        )


def _new_token(cluster: str, kind: str) -> str:
    """Return a token of at most 64 characters, which clouds also take to recognise a repetition."""
    return f"{cluster}-{kind.replace('_', '-')}-{secrets.token_hex(4)}"


def _missing(request: ClusterRequest, machines: Sequence[ClusterMachine]) -> list[int]:
    names = {machine.name for machine in machines if machine.state != "ending"}
    return [i for i in range(request.num_machines) if machine_name(request.name, i) not in names]


def _chosen(request: ClusterRequest, machines: Sequence[ClusterMachine]) -> list[ClusterMachine]:
    """Return one machine for each name, in the order of the numbers."""
    by_name = {machine.name: machine for machine in machines if machine.state != "ending"}
    names = [machine_name(request.name, index) for index in range(request.num_machines)]
    return [by_name[name] for name in names if name in by_name]


def _ranges(indices: Sequence[int]) -> Iterator[range]:
    """Yield the successive numbers of a sorted list as ranges."""
    start = 0
    for end in range(1, len(indices) + 1):
        if end == len(indices) or indices[end] != indices[end - 1] + 1:
            yield range(indices[start], indices[end - 1] + 1)
            start = end
