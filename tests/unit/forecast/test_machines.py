"""Machines that clouds rent out, and those that a user names."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.errors import UsageError
from slipstream.forecast.hardware import Hardware, load
from slipstream.forecast.search.machines import HostType, distinct, ethernet, network, own, rented

OFFER = """
[[offer]]
cloud = "{cloud}"
instance = "{instance}"
region = "here"
device = "{device}"
count = {count}
{network}
dollars_per_hour = {dollars}
market = "{market}"
date = "2026-11"
source = "me"
"""
OFFERS = (
    ("mine", "small", "T4", 1, "", 1.5, "on-demand"),
    ("mine", "large", "H100", 8, "network_gbit_per_s = 3200", 80.0, "on-demand"),
    ("mine", "large", "H100", 8, "network_gbit_per_s = 3200", 30.0, "spot"),
    ("yours", "other", "H100", 8, "network_gbit_per_s = 100", 60.0, "on-demand"),
)
NAMES = ("cloud", "instance", "device", "count", "network", "dollars", "market")


@pytest.fixture(name="hardware")
def hardware_fixture(tmp_path: Path) -> Hardware:
    """Return hardware with offers of two invented clouds in addition to the usual ones."""
    text = "".join(OFFER.format(**dict(zip(NAMES, each, strict=True))) for each in OFFERS)
    (tmp_path / "own.toml").write_text(text)
    return load(tmp_path)


@pytest.mark.parametrize(
    ("gbit", "gbyte", "latency"),
    # TCP leaves 94 % for payload; from 400 Gbit/s on, vendors' networks are RDMA.
    [
        (0.5, 0.05875, 33),
        (10, 1.175, 33),
        (399, 399 / 8 * 0.94, 33),
        (400, 50, 14),
        (3200, 400, 14),
    ],
)
def test_fast_networks_are_rdma(gbit: float, gbyte: float, latency: float):
    found = ethernet(gbit)
    assert (found.gbyte_per_s, found.latency_us) == (pytest.approx(gbyte), latency)
    assert (found.name, found.kind) == (f"{gbit} Gbit/s", "network")


@pytest.mark.parametrize("text", ["25", "25g", "25 G", "25Gb/s", "25 gbit/s", "25000Mbit/s"])
def test_networks_are_named_by_their_rate(text: str):
    assert network(load(), text) == ethernet(25)


@pytest.mark.parametrize("text", ["0", "-1", "nan"])
def test_a_network_has_a_rate_above_0(text: str):
    with pytest.raises(UsageError, match=r"Gbit/s; more than 0 is needed"):
        network(load(), text)


def test_networks_are_named_by_their_link():
    assert network(load(), "infiniband-ndr") == load().link("infiniband-ndr")
    with pytest.raises(UsageError, match=r"'carrier-pigeon'.*; or a rate such as 25g"):
        network(load(), "carrier-pigeon")


def test_an_own_host_is_named_after_what_is_in_it():
    alone = own(load(), "h100", 4)
    assert (alone.name, alone.cluster.between, alone.dollars_per_hour) == ("4 x H100", None, None)
    joined = own(load(), "h100", 4, ethernet(25), 3.0)
    assert (joined.name, joined.dollars_per_hour) == ("4 x H100, 25 Gbit/s", 3.0)
    assert joined.cluster.per_host == 4
    assert joined.cluster.inside == load().link(load().device("h100").device_link)


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, ["mine small", "mine large", "yours other"]),
        ({"devices": ["t4"]}, ["mine small"]),
        ({"devices": ["t4", "h100"], "clouds": ["yours"]}, ["yours other"]),
        ({"clouds": ["mine"], "markets": ["spot"]}, ["mine large spot"]),
        (
            {"clouds": ["mine"], "devices": ["H100"], "markets": ["spot", "on-demand"]},
            ["mine large", "mine large spot"],
        ),
    ],
)
def test_offers_are_those_that_are_allowed(
    hardware: Hardware, asked: dict[str, list[str]], names: list[str]
):
    found = [each for each in rented(hardware, **asked) if each.name.startswith(("mine", "yours"))]
    assert [each.name for each in found] == names


def test_an_offer_has_its_network_unless_another_is_asked_for(hardware: Hardware):
    small, large = rented(hardware, clouds=["mine"])
    assert small.cluster.between is None
    assert large.cluster.between == ethernet(3200)
    assert (large.cluster.per_host, large.dollars_per_hour) == (8, 80.0)
    assert large.offer is not None
    assert large.offer.instance == "large"
    joined = rented(hardware, clouds=["mine"], network=ethernet(10))
    assert [each.cluster.between for each in joined] == [ethernet(10), ethernet(10)]


def test_a_cloud_that_is_not_known_is_named(hardware: Hardware):
    with pytest.raises(UsageError, match=r"no cloud is called 'theirs'; known: .*mine.*yours"):
        list(rented(hardware, clouds=["yours", "theirs"]))


def _named(price: float | None, per_host: int = 8, gbit: float | None = 100) -> HostType:
    link = None if gbit is None else ethernet(gbit)
    return own(load(), "h100", per_host, link, price)


def test_of_equal_machines_the_cheapest_stays():
    cheap, dear = _named(1.0), _named(2.0)
    for machines in ([cheap, dear], [dear, cheap]):
        assert distinct(machines) == [cheap]
    # The first of several equal hosts stays, and a host without a price costs nothing.
    same = _named(1.0)
    assert distinct([cheap, same])[0] is cheap
    assert distinct([cheap, _named(None)]) == [_named(None)]
    assert distinct([_named(None), _named(0.5)]) == [_named(None)]
    others = [cheap, _named(1.0, 4), _named(1.0, gbit=10), _named(1.0, gbit=None)]
    assert distinct(others) == others
