"""The collection of what is left behind, over a provider in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipstream.cluster.providers import BusyError, Found, GcReport, Pace, collect
from slipstream.cluster.providers.gc import GRACE_SECONDS
from slipstream.cluster.records import ResourceLedger, Store
from slipstream.errors import ConfigError, SlipstreamError

NOW = 2_000_000_000.0
PACE = Pace(poll_seconds=0.0, settle_seconds=0.0, limit_seconds=0.2)
MACHINE = Found(
    kind="machine",
    external_id="i-1",
    cluster="demo",
    token="demo-machine.0",
    name="task0.demo",
    deadline_at=NOW - 1.0,
)
NETWORK = replace(MACHINE, kind="network", external_id="vpc-1", token="demo-network")


class MemoryProvider:
    """A provider of some resources; a network goes only when no machine is left."""

    name = "memory"
    region = "here"
    deletion_order = ("machine", "network")

    def __init__(self, *found: Found, **errors: SlipstreamError) -> None:
        self.items = {item.external_id: item for item in found}
        self.errors = errors

    def found(self) -> list[Found]:
        if "found" in self.errors:
            raise self.errors["found"]
        return list(self.items.values())

    def delete(self, found: Found) -> None:
        if found.kind in self.errors:
            raise self.errors[found.kind]
        if found.kind == "network" and any(item.kind == "machine" for item in self.found()):
            raise BusyError("a machine uses the network")
        del self.items[found.external_id]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[ResourceLedger]:
    store = Store(tmp_path)
    yield ResourceLedger(store)
    store.close()


def run(provider: Any, ledger: ResourceLedger, **options: Any) -> GcReport:
    return collect([provider], ledger, NOW, pace=PACE, **options)


def enter(ledger: ResourceLedger, found: Found) -> None:
    place = ("memory", "here")
    ledger.intend(
        token=found.token, cluster=found.cluster, place=place, kind=found.kind, name=found.name
    )
    ledger.created(found.token, found.external_id)


def test_what_is_old_goes_in_order_without_any_ledger(ledger: ResourceLedger) -> None:
    provider = MemoryProvider(NETWORK, MACHINE)
    report = run(provider, ledger)
    assert {item.external_id for item in report.doomed} == {"i-1", "vpc-1"}
    assert not report.leaks
    assert not provider.items


def test_the_latest_deadline_of_a_cluster_counts(ledger: ResourceLedger) -> None:
    extended = replace(MACHINE, deadline_at=NOW + 60.0)
    provider = MemoryProvider(NETWORK, extended)
    assert run(provider, ledger).doomed == []
    assert len(provider.items) == 2


def test_another_cluster_of_the_account_stays(ledger: ResourceLedger) -> None:
    other = replace(MACHINE, external_id="i-2", cluster="other", token="o", deadline_at=NOW + 60.0)
    report = run(MemoryProvider(MACHINE, other), ledger)
    assert report.kept == [other]
    assert not report.leaks


def test_a_resource_without_a_deadline_is_told_and_kept(ledger: ResourceLedger) -> None:
    lost = replace(MACHINE, deadline_at=0.0)
    provider = MemoryProvider(lost)
    (leak,) = run(provider, ledger).leaks
    assert leak == (
        "machine i-1 of demo at memory here has no deadline and is in no ledger here; delete it"
        " with: slipstream cluster down demo"
    )
    assert provider.items


def test_what_the_ledger_has_released_goes_after_a_while(ledger: ResourceLedger) -> None:
    alive = replace(MACHINE, deadline_at=NOW + 3600.0)
    enter(ledger, alive)
    ledger.released(alive.token)
    (entry,) = ledger.resources(all_states=True)
    assert entry.released_at is not None
    provider: Any = MemoryProvider(alive)
    early = entry.released_at + GRACE_SECONDS - 1.0
    assert collect([provider], ledger, early, pace=PACE).kept == [alive]
    late = entry.released_at + GRACE_SECONDS + 1.0
    assert collect([provider], ledger, late, pace=PACE).doomed == [alive]
    assert not provider.items


def test_entries_of_what_is_gone_are_closed(ledger: ResourceLedger) -> None:
    enter(ledger, MACHINE)
    report = run(MemoryProvider(), ledger)
    assert [entry.token for entry in report.closed] == [MACHINE.token]
    assert ledger.resources() == []
    assert run(MemoryProvider(), ledger).closed == []


def test_a_dry_run_changes_nothing(ledger: ResourceLedger) -> None:
    enter(ledger, MACHINE)
    provider = MemoryProvider(MACHINE)
    report = run(provider, ledger, dry_run=True)
    assert report.is_dry
    assert report.doomed == [MACHINE]
    assert provider.items
    assert len(ledger.resources()) == 1


@pytest.mark.parametrize("error", [ConfigError("not allowed"), BusyError("still in use")])
def test_what_cannot_be_deleted_is_a_leak_and_stays_in_the_ledger(
    ledger: ResourceLedger, error: SlipstreamError
) -> None:
    enter(ledger, MACHINE)
    (leak,) = run(MemoryProvider(MACHINE, machine=error), ledger).leaks
    assert leak == f"machine i-1 of demo at memory here could not be deleted: {error}"
    assert len(ledger.resources()) == 1


def test_a_provider_that_cannot_be_asked_does_not_stop_the_others(ledger: ResourceLedger) -> None:
    silent: Any = MemoryProvider(found=ConfigError("no credentials"))
    other: Any = MemoryProvider(MACHINE)
    report = collect([silent, other], ledger, NOW, pace=PACE)
    assert report.leaks == ["memory here could not be searched to the end: no credentials"]
    assert not other.items
