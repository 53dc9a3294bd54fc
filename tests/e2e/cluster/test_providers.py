"""Clusters at both clouds: AWS is moto's server, Alibaba Cloud is a fake; no machine boots."""

from __future__ import annotations

import base64
import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import boto3
import pytest
from aliyun_server import steer
from moto_server import SERVER
from provider_sites import HOUR, PACE, CloudSite, aliyun_site, aws_site, environment_of, open_ledger

from slipstream.cluster.providers import ClusterMachine, collect
from slipstream.cluster.providers.boot import boot_script
from slipstream.cluster.records import ResourceLedger
from slipstream.errors import ConfigError, QuotaError, SlipstreamError, UsageError

pytestmark = pytest.mark.multiprocess

QUOTA = {"aws": "VcpuLimitExceeded", "aliyun": "QuotaExceed.ElasticQuota"}
CAPACITY = {"aws": "InsufficientInstanceCapacity", "aliyun": "OperationDenied.NoStock"}
THROTTLED = {"aws": "RequestLimitExceeded", "aliyun": "Throttling.User"}
SKEWED = {"aws": "RequestExpired", "aliyun": "InvalidTimeStamp.Expired"}
FORBIDDEN = {"aws": "UnauthorizedOperation", "aliyun": "Forbidden.RAM"}
NETWORK = {"aws": "CreateVpc", "aliyun": "CreateVpc"}


AWS = pytest.param(
    "aws",
    marks=[
        pytest.mark.slow("clusters at AWS"),
        pytest.mark.skipif(not SERVER.exists(), reason="`make setup` installs moto's server"),
    ],
)


@pytest.fixture(scope="module", params=[AWS, "aliyun"])
def site(request: pytest.FixtureRequest) -> Iterator[CloudSite]:
    opened = aws_site() if request.param == "aws" else aliyun_site()
    with opened as site, environment_of(site):
        yield site


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[ResourceLedger]:
    with open_ledger(tmp_path) as ledger:
        yield ledger


def kinds(site: CloudSite, cluster: str) -> Counter[str]:
    found = site.provider().found()
    return Counter(item.kind for item in found if item.cluster == cluster)


def ignore(_: str) -> None:
    """Take a notice."""


def test_a_second_up_creates_nothing(site: CloudSite, ledger: ResourceLedger) -> None:
    request = site.request("twice", shared_folder=True, data_disk_gib=10)
    first = site.provider().up(request, ledger, ignore)
    assert [machine.name for machine in first] == ["task0.twice", "task1.twice"]
    assert all(machine.state == "running" and machine.address for machine in first)
    assert all(machine.price_per_hour > 0.0 for machine in first)
    before = {item.external_id for item in site.provider().found()}
    notices: list[str] = []
    assert site.provider().up(request, ledger, notices.append) == first
    assert {item.external_id for item in site.provider().found()} == before
    assert notices == []
    site.provider().down("twice", ledger, ignore)
    assert not kinds(site, "twice")
    assert ledger.resources("twice") == []


def test_machines_let_the_user_of_their_image_in_or_root(
    site: CloudSite, ledger: ResourceLedger
) -> None:
    request = site.request("users", num_machines=1)
    (machine,) = site.provider().up(request, ledger, ignore)
    assert machine.login == {"aws": "ubuntu", "aliyun": "ecs-user"}[site.name]
    assert ("LoginAsNonRoot" in site.requests()) == (site.name == "aliyun")
    site.provider().down("users", ledger, ignore)
    (machine,) = site.provider().up(replace(request, as_root=True), ledger, ignore)
    assert machine.login == "root"
    site.provider().down("users", ledger, ignore)


def test_the_ledger_has_each_part_and_counts_its_cost(
    site: CloudSite, ledger: ResourceLedger
) -> None:
    site.provider().up(site.request("costs"), ledger, ignore)
    entries = ledger.resources("costs")
    assert Counter(entry.kind for entry in entries)["machine"] == 2
    assert all(entry.state == "created" and entry.external_id for entry in entries)
    found = {item.token for item in site.provider().found() if item.cluster == "costs"}
    assert {entry.token for entry in entries} <= found
    assert sum(entry.cost(time.time() + HOUR) for entry in entries) > 0.1
    site.provider().down("costs", ledger, ignore)


def test_a_lost_machine_is_replaced_under_its_name(site: CloudSite, ledger: ResourceLedger) -> None:
    request = site.request("lost", num_machines=3, is_spot=True)
    before = site.provider().up(request, ledger, ignore)
    assert all(machine.is_spot for machine in before)
    site.provider().end_machine("lost", "task1.lost", ledger)
    assert [item.name for item in site.provider().machines("lost")] == ["task0.lost", "task2.lost"]
    after = site.provider().up(request, ledger, ignore)
    assert [machine.name for machine in after] == [machine.name for machine in before]
    kept = {item.external_id for item in before} & {item.external_id for item in after}
    assert kept == {before[0].external_id, before[2].external_id}
    with pytest.raises(UsageError, match=r"task9\.lost.*task0\.lost"):
        site.provider().end_machine("lost", "task9.lost", ledger)
    site.provider().down("lost", ledger, ignore)


def test_a_spot_machine_that_the_cloud_takes_away_is_replaced(
    site: CloudSite, ledger: ResourceLedger
) -> None:
    request = site.request("taken", is_spot=True)
    before = site.provider().up(request, ledger, ignore)
    take_away(site, before[0].external_id)
    after = site.provider().up(request, ledger, ignore)
    assert [machine.name for machine in after] == ["task0.taken", "task1.taken"]
    assert after[0].external_id != before[0].external_id
    assert after[1] == before[1]
    open_entries = [entry for entry in ledger.resources("taken") if entry.kind == "machine"]
    assert {entry.external_id for entry in open_entries} == {item.external_id for item in after}
    site.provider().down("taken", ledger, ignore)


def take_away(site: CloudSite, external_id: str) -> None:
    """End a machine from outside, as a cloud does."""
    if site.name == "aws":
        cast(Any, boto3).client("ec2").terminate_instances(InstanceIds=[external_id])
    else:
        steer(site.environment["ALIYUN_ENDPOINT"], "end", external_id=external_id)


def test_machines_stop_and_start(site: CloudSite, ledger: ResourceLedger) -> None:
    site.provider().up(site.request("pause"), ledger, ignore)
    site.provider().stop("pause")
    assert {item.state for item in site.provider().machines("pause")} == {"stopped"}
    site.provider().start("pause")
    assert {item.state for item in site.provider().machines("pause")} == {"running"}
    site.provider().down("pause", ledger, ignore)


def test_spot_machines_cannot_be_stopped(site: CloudSite, ledger: ResourceLedger) -> None:
    site.provider().up(site.request("fleeting", is_spot=True), ledger, ignore)
    with pytest.raises(UsageError, match=r"task0\.fleeting.*slipstream cluster down"):
        site.provider().stop("fleeting")
    site.provider().down("fleeting", ledger, ignore)


def test_one_cluster_goes_and_another_stays(site: CloudSite, ledger: ResourceLedger) -> None:
    for name in ("stays", "goes"):
        site.provider().up(site.request(name, num_machines=1), ledger, ignore)
    before = kinds(site, "stays")
    site.provider().down("goes", ledger, ignore)
    assert not kinds(site, "goes")
    assert kinds(site, "stays") == before
    site.provider().down("stays", ledger, ignore)


def test_hosts_stand_in_for_machines(site: CloudSite, ledger: ResourceLedger) -> None:
    def address_of(machine: ClusterMachine) -> str:
        return f"{machine.name}.test"

    provider = site.provider(address_of=address_of)
    (machine,) = provider.up(site.request("hosts", num_machines=1), ledger, ignore)
    assert machine.address == "task0.hosts.test"
    provider.down("hosts", ledger, ignore)


def test_further_addresses_are_let_in_once_or_twice(
    site: CloudSite, ledger: ResourceLedger
) -> None:
    site.provider().up(site.request("doors", num_machines=1), ledger, ignore)
    for address in ("198.51.100.7/32", "198.51.100.7/32", "2001:db8::1/128"):
        site.provider().allow("doors", address)
    assert "198.51.100.7" in site.requests()
    assert "0.0.0.0/0" not in site.requests().replace("DestinationCidrBlock=0.0.0.0%2F0", "")
    with pytest.raises(UsageError, match="no cluster 'absent'"):
        site.provider().allow("absent", "198.51.100.7/32")
    site.provider().down("doors", ledger, ignore)


def test_a_deadline_can_be_extended_but_not_shortened(
    site: CloudSite, ledger: ResourceLedger
) -> None:
    request = site.request("longer", num_machines=1, shared_folder=True)
    site.provider().up(request, ledger, ignore)
    later = request.deadline_at + HOUR
    site.provider().extend("longer", later)
    found = [item for item in site.provider().found() if item.cluster == "longer"]
    assert {round(item.deadline_at) for item in found} <= {round(later), round(later) + 1}
    with pytest.raises(UsageError, match="only be set later"):
        site.provider().extend("longer", request.deadline_at)
    report = collect([site.provider()], ledger, request.deadline_at + 1.0, pace=PACE)
    assert report.doomed == []
    assert collect([site.provider()], ledger, later + 2.0, pace=PACE).leaks == []
    assert not kinds(site, "longer")


def test_a_dry_collection_deletes_nothing(site: CloudSite, ledger: ResourceLedger) -> None:
    request = site.request("dry", num_machines=1)
    site.provider().up(request, ledger, ignore)
    before = kinds(site, "dry")
    report = collect([site.provider()], ledger, request.deadline_at + 1.0, dry_run=True)
    assert {item.cluster for item in report.doomed} == {"dry"}
    assert kinds(site, "dry") == before
    collect([site.provider()], ledger, request.deadline_at + 1.0, pace=PACE)
    assert not kinds(site, "dry")
    assert ledger.resources("dry") == []


@pytest.mark.parametrize("codes", [QUOTA, CAPACITY], ids=["quota", "capacity"])
def test_a_refused_cluster_leaves_nothing(
    site: CloudSite, ledger: ResourceLedger, codes: dict[str, str]
) -> None:
    site.refuse("RunInstances", codes[site.name], 1)
    with pytest.raises(QuotaError, match=r"RunInstances.*(quota|zone)"):
        site.provider().up(site.request("refused"), ledger, ignore)
    assert not kinds(site, "refused")
    assert ledger.resources("refused") == []


def test_a_refused_machine_does_not_cost_the_others(
    site: CloudSite, ledger: ResourceLedger
) -> None:
    request = site.request("grows", num_machines=1)
    site.provider().up(request, ledger, ignore)
    site.refuse("RunInstances", QUOTA[site.name], 1)
    with pytest.raises(QuotaError):
        site.provider().up(site.request("grows", num_machines=2), ledger, ignore)
    assert [item.name for item in site.provider().machines("grows")] == ["task0.grows"]
    site.provider().down("grows", ledger, ignore)


def test_too_many_calls_are_repeated(site: CloudSite, ledger: ResourceLedger) -> None:
    site.refuse(NETWORK[site.name], THROTTLED[site.name], 2)
    site.provider().up(site.request("slow", num_machines=1), ledger, ignore)
    assert kinds(site, "slow")["network"] == 1
    site.provider().down("slow", ledger, ignore)


def test_a_wrong_clock_is_named(site: CloudSite, ledger: ResourceLedger) -> None:
    site.refuse(NETWORK[site.name], SKEWED[site.name], 9)
    with pytest.raises(ConfigError, match="clock"):
        site.provider().up(site.request("skewed"), ledger, ignore)
    site.refuse(NETWORK[site.name], SKEWED[site.name], 0)
    assert ledger.resources("skewed") == []


def test_missing_permissions_name_the_policy(site: CloudSite, ledger: ResourceLedger) -> None:
    site.refuse(NETWORK[site.name], FORBIDDEN[site.name], 1)
    with pytest.raises(ConfigError, match=rf"policies/{site.name}\.json"):
        site.provider().up(site.request("forbidden"), ledger, ignore)
    assert ledger.resources("forbidden") == []


def test_unknown_types_and_images_are_named(site: CloudSite, ledger: ResourceLedger) -> None:
    near = site.instance_type[:-1]
    with pytest.raises(UsageError, match=rf"'{near}'.*{site.instance_type}"):
        site.provider().up(site.request("type", instance_type=near), ledger, ignore)
    with pytest.raises(UsageError, match="no image 'nothing'"):
        site.provider().up(site.request("image", image="nothing"), ledger, ignore)
    with pytest.raises(UsageError, match="nowhere-z"):
        site.provider().up(site.request("zone", zone="nowhere-z"), ledger, ignore)
    assert not kinds(site, "type") + kinds(site, "image") + kinds(site, "zone")


def test_an_unreachable_cloud_is_named(
    site: CloudSite, ledger: ResourceLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("ALIYUN_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9.*check the network"):
        site.provider().up(site.request("unreachable"), ledger, ignore)
    report = collect([site.provider()], ledger, time.time())
    assert len(report.leaks) == 1
    assert "could not be searched" in report.leaks[0]


def test_offers_have_prices_and_say_where_they_come_from(site: CloudSite) -> None:
    (offer,) = [
        item
        for item in site.provider().offers(site.instance_type)
        if item.instance_type == site.instance_type
    ]
    assert offer.num_gpus == 1
    assert "T4" in offer.gpu
    assert offer.price is not None
    assert 0.1 < offer.price < 10.0
    assert offer.spot_price is not None
    assert "Price" in offer.price_source
    assert site.provider().offers("no such thing") == []
    assert any("ubuntu" in name for _, name in site.provider().images("ubuntu"))


def test_prices_that_are_not_known_are_explained(
    site: CloudSite, ledger: ResourceLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    if site.name == "aws":
        monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", "http://127.0.0.1:9")
        reason = "prices are not known.*check the network"
    else:
        steer(site.environment["ALIYUN_ENDPOINT"], "currency", currency="CNY")
        reason = "costs 0.8 CNY an hour; set ALIYUN_YUAN_PER_DOLLAR"
    notices: list[str] = []
    site.provider().up(site.request("unpriced", num_machines=1), ledger, notices.append)
    assert re.search(f"the cost is not counted: .*{reason}", notices[0])
    offers = site.provider().offers(site.instance_type)
    assert {offer.price for offer in offers} == {None}
    site.provider().down("unpriced", ledger, ignore)
    if site.name == "aliyun":
        monkeypatch.setenv("ALIYUN_YUAN_PER_DOLLAR", "8")
        (offer,) = site.provider().offers(site.instance_type)
        assert offer.price == pytest.approx(0.1)
        assert "at 8 yuan a dollar" in offer.price_source
        steer(site.environment["ALIYUN_ENDPOINT"], "currency", currency="USD")


def test_an_own_network_is_used_and_kept(site: CloudSite, ledger: ResourceLedger) -> None:
    site.provider().up(site.request("owner", num_machines=1), ledger, ignore)
    (network,) = [
        item.external_id
        for item in site.provider().found()
        if item.cluster == "owner" and item.kind == "network"
    ]
    request = site.request("guest", num_machines=1, network=network)
    site.provider().up(request, ledger, ignore)
    assert kinds(site, "guest")["network"] == kinds(site, "guest")["subnet"] == 0
    site.provider().down("guest", ledger, ignore)
    assert kinds(site, "owner")["network"] == 1
    site.provider().down("owner", ledger, ignore)
    with pytest.raises(UsageError, match="0 networks"):
        site.provider().up(site.request("guest", network="vpc-0"), ledger, ignore)


def test_no_secret_is_sent_or_written(site: CloudSite, tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        site.provider().up(site.request("quiet", shared_folder=True), ledger, ignore)
        found = site.provider().found()
        site.provider().down("quiet", ledger, ignore)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert site.secret.encode() not in written
    assert site.secret not in site.requests()
    assert site.secret not in json.dumps([str(item) for item in found])


def test_wrong_keys_are_named(site: CloudSite, monkeypatch: pytest.MonkeyPatch) -> None:
    if site.name == "aws":  # moto accepts every key
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    else:
        monkeypatch.setenv("ALIYUN_ACCESS_KEY_SECRET", "another")
    with pytest.raises(ConfigError, match=r"(credentials|access key).*ACCESS_KEY"):
        site.provider().found()
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.delenv("ALIYUN_DEFAULT_REGION", raising=False)
    with pytest.raises(ConfigError, match="_DEFAULT_REGION"):
        site.provider()


def test_machines_end_without_the_client(site: CloudSite, ledger: ResourceLedger) -> None:
    request = site.request("alone", num_machines=1)
    (machine,) = site.provider().up(request, ledger, ignore)
    script = boot_script(request.deadline_at, gpu_driver=True)
    assert str(math.ceil(request.deadline_at)) in script
    if site.name == "aws":
        # The script powers the machine off, and that ends it; moto boots no machine.
        client = cast(Any, boto3).client("ec2")
        assert attribute(client, machine, "userData") == script
        behavior = attribute(client, machine, "instanceInitiatedShutdownBehavior")
        assert behavior == "terminate"
    else:
        assert base64.b64encode(script.encode()).decode() in site.requests()
        steer(site.environment["ALIYUN_ENDPOINT"], "clock", now=request.deadline_at - 120.0)
        assert site.provider().machines("alone") == [machine]
        steer(site.environment["ALIYUN_ENDPOINT"], "clock", now=request.deadline_at)
        assert site.provider().machines("alone") == []
    site.provider().down("alone", ledger, ignore)


def attribute(client: Any, machine: ClusterMachine, name: str) -> str:
    """Return an attribute of a machine at AWS."""
    answer = client.describe_instance_attribute(InstanceId=machine.external_id, Attribute=name)
    value = answer["".join((name[0].upper(), name[1:]))]["Value"]
    return base64.b64decode(value).decode() if name == "userData" else value


def test_errors_are_of_our_tree(site: CloudSite, ledger: ResourceLedger) -> None:
    site.refuse("RunInstances", "SomethingNew", 1)
    with pytest.raises(SlipstreamError, match="SomethingNew"):
        site.provider().up(site.request("strange"), ledger, ignore)
    assert not kinds(site, "strange")
