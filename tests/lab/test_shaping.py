"""The rates of links and the caps of flows, seen by plain TCP.

A link is never faster than it should be. How much slower it may seem on a busy machine is left
wide; docs/lab.md has what it is on an idle one.
"""

import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.lab import Lab, LabRun, LabSpec

pytestmark = [pytest.mark.netns, pytest.mark.alone]

Transfer = Callable[..., Any]  # returns conftest.Reports
Wait = Callable[[Callable[[], object]], None]
MBIT = 1_000_000
PAYLOAD = 1448 / 1514  # of a frame
FASTER = 1.04  # what the burst adds to a transfer of half a second
SLOWER = 0.7
ATTEMPTS = 4


def check_rates(measure: Callable[[], list[float]], allowed: float) -> None:
    """Check that rates of payload are those of a link or cap, in bits per second.

    A machine that does other things at the same time may disturb one attempt; a link that is
    shaped wrongly disturbs all.
    """
    attempts: list[list[float]] = []
    for _ in range(ATTEMPTS):
        attempts.append([rate / PAYLOAD / allowed for rate in measure()])
        if all(SLOWER < share < FASTER for share in attempts[-1]):
            return
    raise AssertionError(f"shares of the rate allowed: {attempts}")


@pytest.mark.parametrize(("pairs"), [("0:1",), ("0:1", "1:0"), ("0:1", "1:2", "2:0")])
def test_a_link_has_its_rate_in_each_direction(transfer: Transfer, pairs: tuple[str, ...]) -> None:
    with Lab(LabSpec(hosts=3, rate="100mbit")) as lab:
        assert len(transfer(lab, 100_000, *pairs)) == len(pairs)
        check_rates(
            lambda: [report.rate for report in transfer(lab, 6_000_000, *pairs)], 100 * MBIT
        )


@pytest.mark.parametrize("pair", ["0:1", "1:0"])
def test_the_slower_of_two_links_counts(transfer: Transfer, pair: str) -> None:
    with Lab(LabSpec(hosts=2, rates=("1gbit", "80mbit"))) as lab:
        check_rates(lambda: [report.rate for report in transfer(lab, 5_000_000, pair)], 80 * MBIT)


def test_a_flow_is_capped_and_several_share_the_link(transfer: Transfer) -> None:
    spec = LabSpec(hosts=2, rate="200mbit", flow_rate="40mbit", flow_classes=1024)
    with Lab(spec) as lab:
        check_rates(lambda: [transfer(lab, 3_000_000, "0:1")[0].rate], 40 * MBIT)
        fastest: list[float] = []

        def together() -> list[float]:
            (report,) = transfer(lab, 16_000_000, "0:1", streams=16)
            fastest.append(max(report.stream_rates))
            return [report.rate]

        check_rates(together, 200 * MBIT)
    assert min(fastest) < FASTER * 40 * MBIT


def test_flows_on_one_path_share_its_cap(transfer: Transfer) -> None:
    with Lab(LabSpec(hosts=2, rate="200mbit", flow_rate="40mbit", flow_classes=1)) as lab:
        check_rates(lambda: [transfer(lab, 4_000_000, "0:1", streams=4)[0].rate], 40 * MBIT)


def test_paths_can_have_unequal_caps(
    start_transfer: Callable[..., LabRun], wait_until: Wait, rate_now: Callable[..., float]
) -> None:
    with Lab(LabSpec(hosts=2, rate="200mbit", flow_rates=("40mbit", "10mbit"))) as lab:
        # Sixteen flows take the same of two paths once in 32,768 runs.
        run = start_transfer(lab, 10**10, "0:1", streams=16)
        wait_until(lambda: lab.counters().hosts[0].sent_bytes > 1_000_000)
        wait_until(lambda: 44 * MBIT < rate_now(lab) < 52 * MBIT)
        fastest = max(rate_now(lab) for _ in range(3))
        run.end()
    assert fastest < 1.1 * 50 * MBIT


def test_connections_are_spread_over_the_paths(transfer: Transfer) -> None:
    with Lab(LabSpec(hosts=2, flow_rate="50mbit", flow_classes=64)) as lab:
        transfer(lab, 640_000, "0:1", streams=64)
        command = ["tc", "-n", lab.namespaces[0], "-s", "class", "show", "dev", "lab0"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = [size for size in re.findall(r"Sent (\d+) bytes", shown) if int(size) >= 10_000]
    # Balls at random would fill 41 of 64 bins, and fewer than 30 once in 100,000 runs. The class
    # of the link itself is one more.
    assert len(used) >= 30


def test_racks_share_an_uplink_and_have_no_part_in_each_other(transfer: Transfer) -> None:
    with Lab(LabSpec(hosts=4, rate="200mbit", racks=2, uplink="50mbit")) as lab:
        check_rates(lambda: [transfer(lab, 10_000_000, "0:1")[0].rate], 200 * MBIT)
        before = lab.counters()
        across = transfer(lab, 2_000_000, "0:2", "1:3")
        uplinks = lab.counters().since(before).uplinks
        check_rates(lambda: [transfer(lab, 2_000_000, "0:2")[0].rate], 50 * MBIT)
    # The sum of both cannot be had from rates: they need not begin at the same moment.
    seconds = max(max(report.stream_seconds) for report in across)
    assert seconds > 4_000_000 * 8 / PAYLOAD / (50 * MBIT) / FASTER - 0.3
    # Payload is what is left without 66 bytes for each packet, and ARP's have only 42.
    assert uplinks[0].sent_payload_bytes >= 4_000_000 - 1000
    assert uplinks[1].received_payload_bytes >= 4_000_000 - 1000


@pytest.mark.launcher("ping")
def test_others_wait_only_milliseconds_behind_a_transfer(
    start_transfer: Callable[..., LabRun], wait_until: Wait
) -> None:
    with Lab(LabSpec(hosts=2, rate="200mbit")) as lab:
        run = start_transfer(lab, 10**10, "0:1")
        wait_until(lambda: lab.counters().hosts[0].sent_bytes > 5_000_000)
        command = ["ping", "-q", "-c", "20", "-i", "0.02", lab.addresses[1]]
        averages: list[float] = []
        while len(averages) < ATTEMPTS and (not averages or averages[-1] >= 15):
            (lines,) = lab.run(command, hosts=1, ranks_per_host=1).lines
            # rtt min/avg/max/mdev = 0.03/0.68/1.42/0.62 ms
            averages.append(float(lines[-1].split("/")[4]))
        run.end()
    assert 0 < averages[-1] < 15, averages
