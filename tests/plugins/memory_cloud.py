"""A cloud in memory, whose lists may be late and whose machines may end at any time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from slipstream.cluster.providers.cloud import (
    FIRST_TAG,
    MACHINE,
    ClusterPlan,
    Ids,
    Tags,
    found_by_tags,
    machine_name,
)
from slipstream.cluster.providers.pace import BusyError
from slipstream.cluster.providers.protocol import (
    ClusterMachine,
    ClusterRequest,
    Found,
)


class MemoryPart:
    """One kind of part.

    Args:
        kind: Name of the kind.
        late: Number of times that the list lacks a new part.
    """

    def __init__(self, kind: str, late: int = 0) -> None:
        self.kind = kind
        self.late = late
        self.items: dict[str, Found] = {}
        self.num_created = 0
        self.num_completed = 0
        self.num_busy = 0
        self.num_stuck = 0

    def is_wanted(self, plan: ClusterPlan) -> bool:
        return True

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        self.num_created += 1
        external_id = f"{self.kind}-{self.num_created}"
        self.items[external_id] = found_by_tags(self.kind, external_id, tags)
        return external_id

    def complete(self, plan: ClusterPlan, ids: Ids) -> None:
        if self.num_busy:
            self.num_busy -= 1
            raise BusyError("not yet")
        self.num_completed += 1

    def listed(self, cluster: str = "") -> list[Found]:
        if self.items and self.late:
            self.late -= 1
            return []
        return [item for item in self.items.values() if cluster in ("", item.cluster)]

    def delete(self, found: Found) -> None:
        if self.num_stuck:
            self.num_stuck -= 1
            raise BusyError("in use")
        self.items.pop(found.external_id, None)


class MemoryMachines:
    """Machines; `ends_at_once` of them end as soon as they are created."""

    def __init__(self) -> None:
        self.items: dict[str, Found] = {}
        self.launches: list[list[int]] = []
        self.ends_at_once = 0
        self.states: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def launch(self, plan: ClusterPlan, ids: Ids, indices: range, tags: Tags) -> Sequence[str]:
        assert tags[FIRST_TAG] == str(indices.start)
        self.launches.append(list(indices))
        return [self._add(index, tags) for index in indices]

    def machines(self, cluster: str) -> list[ClusterMachine]:
        found = [item for item in self.items.values() if item.cluster == cluster]
        return [
            ClusterMachine(
                name=machine_name(cluster, item.facts["index"]),
                external_id=item.external_id,
                state=self.states.get(item.external_id, "running"),
                address="192.0.2.1",
                inner_address="10.0.0.1",
                login="ubuntu",
                price_per_hour=1.0,
            )
            for item in sorted(found, key=lambda item: item.facts["index"])
        ]

    def listed(self, cluster: str = "") -> list[Found]:
        return [item for item in self.items.values() if cluster in ("", item.cluster)]

    def delete(self, found: Found) -> None:
        self.items.pop(found.external_id, None)

    def stop(self, machines: Sequence[ClusterMachine]) -> None:
        self.states.update({machine.external_id: "stopped" for machine in machines})

    def start(self, machines: Sequence[ClusterMachine]) -> None:
        self.states.update({machine.external_id: "running" for machine in machines})

    def _add(self, index: int, tags: Tags) -> str:
        external_id = f"i-{next(self._numbers)}"
        if self.ends_at_once:
            self.ends_at_once -= 1
        else:
            found = found_by_tags(MACHINE, external_id, tags, index=index, price=1.0)
            self.items[external_id] = found
        return external_id


class MemoryCloud:
    """A region with a network and machines."""

    name = "memory"
    region = "here"

    def __init__(self, late: int = 0, price: float | None = 1.0) -> None:
        self.network = MemoryPart("network", late)
        self.parts = (self.network,)
        self.machines = MemoryMachines()
        self.price = price

    def plan(self, request: ClusterRequest) -> ClusterPlan:
        return ClusterPlan(
            request=request,
            image="image",
            login="ubuntu",
            price_per_hour=self.price,
            price_source="the price list is closed",
            given={},
            facts={},
        )

    def offers(self, pattern: str) -> list[Any]:
        return []

    def images(self, pattern: str) -> list[Any]:
        return []

    def allow(self, firewall: str, address: str) -> None:
        raise AssertionError("this cloud has no firewall")

    def set_deadline(self, found: Sequence[Found], deadline_at: float) -> None:
        raise AssertionError("no test extends a cluster in memory")
