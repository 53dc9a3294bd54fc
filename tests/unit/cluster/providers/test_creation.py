"""The creation of a cluster over a cloud in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from memory_cloud import MemoryCloud

from slipstream.cluster.providers import BusyError, ClusterRequest, Pace
from slipstream.cluster.providers.cloud_provider import CloudProvider
from slipstream.cluster.providers.creation import MAX_LAUNCHES
from slipstream.cluster.records import ResourceLedger, Store
from slipstream.errors import QuotaError, UsageError

PACE = Pace(poll_seconds=0.0, settle_seconds=0.0, limit_seconds=5.0)
HASTY = replace(PACE, limit_seconds=1.0)
PATIENT = replace(PACE, settle_seconds=5.0)
REQUEST = ClusterRequest(
    name="demo",
    num_machines=3,
    instance_type="large",
    public_key="ssh-ed25519 AAAA me",
    open_to=("192.0.2.1/32",),
    deadline_at=2_000_000_000.0,
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[ResourceLedger]:
    store = Store(tmp_path)
    yield ResourceLedger(store)
    store.close()


def ignore(_: str) -> None:
    """Take a notice."""


def intend(ledger: ResourceLedger, kind: str, name: str, token: str) -> None:
    ledger.intend(token=token, cluster="demo", place=("memory", "here"), kind=kind, name=name)


def test_all_machines_are_created_by_one_call(ledger: ResourceLedger) -> None:
    cloud = MemoryCloud()
    machines = CloudProvider(cloud, PACE).up(REQUEST, ledger, ignore)
    assert [machine.name for machine in machines] == ["task0.demo", "task1.demo", "task2.demo"]
    assert cloud.machines.launches == [[0, 1, 2]]
    prices = {entry.kind: entry.price_per_hour for entry in ledger.resources("demo")}
    assert prices == {"network": 0.0, "machine": 1.0}


def test_missing_machines_are_created_in_runs_of_numbers(ledger: ResourceLedger) -> None:
    cloud = MemoryCloud()
    request = replace(REQUEST, num_machines=6)
    provider = CloudProvider(cloud, PACE)
    provider.up(request, ledger, ignore)
    for name in ("task1.demo", "task2.demo", "task5.demo"):
        provider.end_machine("demo", name, ledger)
    provider.up(request, ledger, ignore)
    assert cloud.machines.launches == [[0, 1, 2, 3, 4, 5], [1, 2], [5]]


def test_machines_that_end_while_others_start_are_replaced(ledger: ResourceLedger) -> None:
    cloud = MemoryCloud()
    cloud.machines.ends_at_once = 2
    CloudProvider(cloud, PACE).up(REQUEST, ledger, ignore)
    assert cloud.machines.launches == [[0, 1, 2], [0, 1]]


def test_a_cloud_that_ends_all_machines_is_given_up(ledger: ResourceLedger) -> None:
    cloud = MemoryCloud()
    cloud.machines.ends_at_once = 1000
    with pytest.raises(QuotaError, match=f"{MAX_LAUNCHES} times"):
        CloudProvider(cloud, PACE).up(REQUEST, ledger, ignore)
    assert len(cloud.machines.launches) == MAX_LAUNCHES
    assert not cloud.network.items
    assert ledger.resources("demo") == []


def test_a_part_that_an_interrupted_client_made_is_awaited(ledger: ResourceLedger) -> None:
    cloud = MemoryCloud(late=3)
    intend(ledger, "network", "demo", "demo-network-1")
    plan = cloud.plan(REQUEST)
    tags = {"slipstream-cluster": "demo", "slipstream-token": "demo-network-1"}
    cloud.network.create(plan, {}, tags)
    CloudProvider(cloud, PATIENT).up(REQUEST, ledger, ignore)
    assert cloud.network.num_created == 1
    (entry,) = [entry for entry in ledger.resources("demo") if entry.kind == "network"]
    assert (entry.token, entry.state) == ("demo-network-1", "created")


def test_a_part_that_was_never_made_is_made_under_its_token(ledger: ResourceLedger) -> None:
    cloud = MemoryCloud()
    intend(ledger, "network", "demo", "demo-network-1")
    for index in range(3):
        intend(ledger, "machine", f"task{index}.demo", f"demo-machine-1.{index}")
    CloudProvider(cloud, PACE).up(REQUEST, ledger, ignore)
    tokens = {entry.token for entry in ledger.resources("demo")}
    assert tokens == {"demo-network-1", *(f"demo-machine-1.{index}" for index in range(3))}


def test_a_new_part_is_awaited_in_the_list_before_others_need_it(ledger: ResourceLedger) -> None:
    cloud = MemoryCloud(late=4)
    cloud.network.num_busy = 2
    CloudProvider(cloud, PACE).up(REQUEST, ledger, ignore)
    assert cloud.network.late == 0
    assert cloud.network.num_completed == 1


def test_stopped_machines_are_started(ledger: ResourceLedger) -> None:
    cloud = MemoryCloud()
    provider = CloudProvider(cloud, PACE)
    before = provider.up(REQUEST, ledger, ignore)
    provider.stop("demo")
    assert provider.up(REQUEST, ledger, ignore) == before


def test_a_ledger_learns_of_what_another_one_made(ledger: ResourceLedger, tmp_path: Path) -> None:
    cloud = MemoryCloud()
    CloudProvider(cloud, PACE).up(REQUEST, ledger, ignore)
    store = Store(tmp_path / "other")
    other = ResourceLedger(store)
    CloudProvider(cloud, PACE).up(REQUEST, other, ignore)
    known = {(entry.token, entry.external_id) for entry in ledger.resources("demo")}
    assert {(entry.token, entry.external_id) for entry in other.resources("demo")} == known
    assert len(cloud.machines.launches) == 1
    store.close()


def test_an_unknown_price_is_told(ledger: ResourceLedger) -> None:
    notices: list[str] = []
    CloudProvider(MemoryCloud(price=None), PACE).up(REQUEST, ledger, notices.append)
    assert notices[0] == "the cost is not counted: the price list is closed"


def test_a_machine_that_was_taken_away_is_ended_in_the_ledger(ledger: ResourceLedger) -> None:
    cloud = MemoryCloud()
    provider = CloudProvider(cloud, PACE)
    provider.up(REQUEST, ledger, ignore)
    (taken,) = [item for item in cloud.machines.listed() if item.name == "task1.demo"]
    cloud.machines.delete(taken)
    provider.end_machine("demo", "task1.demo", ledger)
    names = [entry.name for entry in ledger.resources("demo") if entry.kind == "machine"]
    assert names == ["task0.demo", "task2.demo"]
    with pytest.raises(UsageError, match=r"no machine 'task1\.demo'.*task0\.demo, task2\.demo"):
        provider.end_machine("demo", "task1.demo", ledger)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "Demo"}, "'Demo' is no name"),
        ({"name": "a" * 41}, "up to 40"),
        ({"name": "demo-"}, "no name"),
        ({"num_machines": 0}, "0 machines"),
        ({"deadline_at": 1.0}, "has passed"),
    ],
)
def test_requests_that_no_cloud_can_fulfil_are_refused(
    ledger: ResourceLedger, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        CloudProvider(MemoryCloud(), PACE).up(replace(REQUEST, **changes), ledger, ignore)
    assert ledger.resources(all_states=True) == []


def test_a_deletion_tells_what_went_and_what_is_left(ledger: ResourceLedger) -> None:
    cloud = MemoryCloud()
    notices: list[str] = []
    provider = CloudProvider(cloud, PACE)
    provider.up(replace(REQUEST, num_machines=1), ledger, ignore)
    cloud.network.num_stuck = 10**9
    with pytest.raises(BusyError, match=r"demo are gone.*Left are network-1: in use"):
        CloudProvider(cloud, HASTY).down("demo", ledger, notices.append)
    assert notices == ["i-1 deleted"]
    assert ledger.resources("demo")
    cloud.network.num_stuck = 1
    provider.down("demo", ledger, notices.append)
    assert notices == ["i-1 deleted", "network-1 deleted"]
    assert ledger.resources("demo") == []


def test_fewer_machines_leave_the_others_alone(ledger: ResourceLedger) -> None:
    cloud = MemoryCloud()
    provider = CloudProvider(cloud, PACE)
    provider.up(REQUEST, ledger, ignore)
    machines = provider.up(replace(REQUEST, num_machines=1), ledger, ignore)
    assert [machine.name for machine in machines] == ["task0.demo"]
    assert len(provider.machines("demo")) == 3


def test_two_clients_at_once_make_the_machines_once(ledger: ResourceLedger, tmp_path: Path) -> None:
    cloud = MemoryCloud()
    launch = cloud.machines.launch
    provider = CloudProvider(cloud, PACE)
    second = threading.Thread(target=lambda: provider.up(REQUEST, ledger, ignore))

    def launch_slowly(*arguments: Any) -> Any:
        if not cloud.machines.launches and second.ident is None:
            second.start()
            second.join(0.2)  # without a lock, it would make machines of its own meanwhile
        return launch(*arguments)

    cloud.machines.launch = launch_slowly
    provider.up(REQUEST, ledger, ignore)
    second.join()
    assert cloud.machines.launches == [[0, 1, 2]]
    assert (tmp_path / "locks/demo.lock").exists()
