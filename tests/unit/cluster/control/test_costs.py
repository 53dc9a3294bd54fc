"""Costs by the ledger, beside the estimates of groups and of runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from slipstream.cluster.control.costs import cluster_costs
from slipstream.cluster.records import ResourceLedger, RunLog, Store

PLACE = ("aws", "us-east-1")


def test_hours_and_prices_add_up_for_each_cluster(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ledger = ResourceLedger(store)
    for number in range(2):
        token = f"machine{number}"
        ledger.intend(
            token=token, cluster="lab", place=PLACE, kind="machine", name="m", price_per_hour=1.5
        )
        ledger.created(token, f"i-{number}")
    ledger.released("machine0")
    ledger.intend(token="net", cluster="lab", place=PLACE, kind="network", name="lab")
    (cost,) = cluster_costs(store, time.time() + 7200.0, "lab")
    assert cost.machine_hours == pytest.approx(2.0, abs=0.01)
    assert cost.spent == pytest.approx(3.0, abs=0.02)
    assert (cost.per_hour, cost.num_open, cost.most, cost.has_prices) == (1.5, 2, None, True)
    assert cluster_costs(store, time.time(), "other") == []


def test_the_machines_of_a_run_are_found_by_its_name_and_compared_with_its_estimate(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    offer = {"price": 2.0, "spot_price": 0.5}
    estimate = {"offer": offer, "num_machines": 3, "is_spot": True, "hours": 4.0}
    facts = {"estimate": estimate}
    run = RunLog(store).begin(name="train", engine="aws", spec={}, deadline_at=None, facts=facts)
    cluster = f"train-{run.number}"
    ResourceLedger(store).intend(
        token="t", cluster=cluster, place=PLACE, kind="machine", name="task0"
    )
    (cost,) = cluster_costs(store, time.time(), "train")
    assert (cost.cluster, cost.most, cost.spent) == (cluster, 6.0, 0.0)
