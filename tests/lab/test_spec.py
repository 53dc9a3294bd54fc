"""What a lab may look like, and how rates are written."""

from typing import Any

import pytest

from slipstream.errors import UsageError
from slipstream.lab import LabSpec
from slipstream.lab.rates import parse_rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1gbit", 1_000_000_000),
        ("250mbit", 250_000_000),
        ("12.5mbit", 12_500_000),
        ("100 kbit", 100_000),
        ("1000000bit", 1_000_000),
        ("2.5Gbit", 2_500_000_000),
    ],
)
def test_a_rate_is_read_as_tc_reads_it(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "1", "1gb", "-1mbit", "1kbit", "1000gbit", "1,5mbit"])
def test_what_is_no_rate_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(UsageError, match=r"uplink is .*1gbit, 12\.5mbit or 200Mbit/s"):
        parse_rate(text, "uplink")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"hosts": 0}, "hosts is 0; allowed: 1 to 64"),
        ({"ranks_per_host": 65}, "ranks_per_host is 65"),
        ({"flow_classes": 0}, "flow_classes is 0"),
        ({"rate": "1"}, "rate is '1'"),
        ({"hosts": 2, "rates": ("1gbit", "x")}, "rates is 'x'"),
        ({"hosts": 3, "rates": ("1gbit", "1gbit")}, "rates has 2 values for 3 hosts"),
        ({"flow_rate": "1mbit", "flow_rates": ("1mbit",)}, "both given"),
        ({"racks": 2}, "racks is 2 and uplink is None"),
        ({"uplink": "1gbit"}, "racks is 1 and uplink is '1gbit'"),
        ({"hosts": 2, "racks": 3, "uplink": "1gbit"}, "racks is 3; allowed: 1 to 2"),
    ],
)
def test_a_lab_that_cannot_be_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        LabSpec(**fields)


def test_hosts_are_divided_evenly_among_racks() -> None:
    spec = LabSpec(hosts=5, racks=2, uplink="1gbit")
    assert [spec.rack_of(host) for host in range(5)] == [0, 0, 0, 1, 1]


def test_one_cap_of_flows_means_many_paths_and_several_mean_themselves() -> None:
    assert LabSpec(flow_rate="10mbit", flow_classes=3).flow_caps == (10_000_000,) * 3
    assert LabSpec(flow_rates=("10mbit", "5mbit")).flow_caps == (10_000_000, 5_000_000)
    assert LabSpec().flow_caps == ()
