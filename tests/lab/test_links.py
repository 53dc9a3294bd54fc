"""Links that change, go down and come back under a transfer, and their counters."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slipstream.errors import UsageError
from slipstream.lab import Lab, LabRun, LabSpec

pytestmark = [pytest.mark.netns, pytest.mark.alone]

RateNow = Callable[..., float]
StartTransfer = Callable[..., LabRun]
Wait = Callable[[Callable[[], object]], None]
MBIT = 1_000_000
ENDLESS = 10**11


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(hosts=2, rate="100mbit")) as made:
        yield made


def test_a_link_changes_under_a_transfer(
    lab: Lab, start_transfer: StartTransfer, wait_until: Wait, rate_now: RateNow
) -> None:
    run = start_transfer(lab, ENDLESS, "0:1")
    wait_until(lambda: 70 * MBIT < rate_now(lab) < 110 * MBIT)
    lab.change(1, rate="20mbit")
    wait_until(lambda: 14 * MBIT < rate_now(lab) < 25 * MBIT)
    lab.change(1, rate="400mbit")
    lab.change(0, rate="400mbit")
    wait_until(lambda: 250 * MBIT < rate_now(lab) < 440 * MBIT)
    assert lab.spec.rates == ("400mbit", "400mbit")
    run.end()


def test_a_changed_link_keeps_its_caps(
    start_transfer: StartTransfer, wait_until: Wait, rate_now: RateNow
) -> None:
    with Lab(LabSpec(hosts=2, rate="20mbit", flow_rate="50mbit", flow_classes=4)) as lab:
        run = start_transfer(lab, ENDLESS, "0:1")
        wait_until(lambda: 14 * MBIT < rate_now(lab) < 25 * MBIT)
        for host in (0, 1):
            lab.change(host, rate="200mbit")
        wait_until(lambda: 35 * MBIT < rate_now(lab) < 56 * MBIT)
        run.end()


def test_an_uplink_changes_under_a_transfer(
    start_transfer: StartTransfer, wait_until: Wait, rate_now: RateNow
) -> None:
    with Lab(LabSpec(hosts=2, rate="100mbit", racks=2, uplink="100mbit")) as lab:
        run = start_transfer(lab, ENDLESS, "0:1")
        lab.change_uplinks(rate="20mbit")
        wait_until(lambda: 14 * MBIT < rate_now(lab) < 25 * MBIT)
        run.end()


def test_a_transfer_stops_at_a_cut_and_goes_on_after_it(
    lab: Lab, start_transfer: StartTransfer, wait_until: Wait, rate_now: RateNow
) -> None:
    run = start_transfer(lab, ENDLESS, "0:1")
    wait_until(lambda: rate_now(lab) > 70 * MBIT)
    lab.cut(1)
    assert lab.is_cut(1)
    assert not lab.is_cut(0)
    wait_until(lambda: lab.counters().hosts[1].received_bytes == received_later(lab, rate_now))
    lab.mend(1)
    assert not lab.is_cut(1)
    wait_until(lambda: 70 * MBIT < rate_now(lab) < 110 * MBIT)
    assert run.is_running
    run.end()


def received_later(lab: Lab, rate_now: RateNow) -> int:
    """Return what host 1 has received after a while."""
    rate_now(lab)
    return lab.counters().hosts[1].received_bytes


def test_counters_have_what_was_sent(lab: Lab, transfer: Callable[..., Any]) -> None:
    before = lab.counters()
    transfer(lab, 3_000_000, "0:1", streams=3)
    passed = lab.counters().since(before)
    sender, receiver = passed.hosts
    # Beyond the payload: lookups of addresses, and what was sent again after a full queue.
    assert 3_000_000 <= sender.sent_payload_bytes < 3_150_000
    assert sender.sent_bytes >= 3_000_000 / 1448 * 1514
    assert receiver.received_payload_bytes == pytest.approx(sender.sent_payload_bytes, rel=0.03)
    assert abs(receiver.sent_payload_bytes) < 30_000
    assert sender.received_bytes == pytest.approx(receiver.sent_bytes, abs=2_000)


@pytest.mark.parametrize("host", [-1, 2])
def test_a_host_that_is_not_there_has_no_link(lab: Lab, host: int) -> None:
    with pytest.raises(UsageError, match="allowed: 0 to 1"):
        lab.change(host, rate="1mbit")
    with pytest.raises(UsageError, match="allowed: 0 to 1"):
        lab.cut(host)


def test_one_rack_has_no_uplink(lab: Lab) -> None:
    with pytest.raises(UsageError, match="no uplink"):
        lab.change_uplinks(rate="1mbit")
