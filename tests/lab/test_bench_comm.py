"""Collectives measured in a lab: bytes on the links, yardsticks, peers."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstream.bench.comm import table as comm_table
from slipstream.bench.comm.cross_traffic import cross_traffic
from slipstream.bench.comm.measure import RING, CommReport, CommSpec, measure
from slipstream.lab import Lab, LabSpec
from slipstream.lab import registry as labs

pytestmark = [pytest.mark.netns, pytest.mark.alone, pytest.mark.multiprocess]

COMMAND = str(Path(sys.executable).with_name("slipstream"))
LIMIT_SECONDS = 60.0
SIZES = (4_000, 1_000_000)


@pytest.mark.slow("bench of communication")
def test_bytes_on_the_links_are_counted_beside_the_least() -> None:
    report = measured("gloo", codecs=("none", "fp16"))
    plain, half = report.row("slipstream", SIZES[1]), report.row("slipstream fp16", SIZES[1])
    assert plain.least_host_bytes == 1_000_000
    for row in (plain, half, report.row("gloo", SIZES[1])):
        assert row.host_bytes is not None
        assert row.least_host_bytes is not None
        assert 1.0 <= row.host_bytes / row.least_host_bytes < 1.1
        assert row.limit_share is not None
        assert 0 < row.limit_share < 1.1
    assert half.least_host_bytes == pytest.approx(500_488, abs=1)
    assert report.row("slipstream", SIZES[0]).host_bytes is None


@pytest.mark.slow("bench of communication")
def test_a_round_trip_stands_beside_small_sizes() -> None:
    report = measured()
    assert 0 < report.row("tcp ping-pong", SIZES[0]).samples.median < 0.1
    with pytest.raises(KeyError):
        report.row("tcp ping-pong", SIZES[1])


@pytest.mark.slow("bench of communication")
def test_the_flat_ring_sends_more_between_racks() -> None:
    racks = LabSpec(ranks_per_host=2, hosts=4, rate="200mbit", racks=2, uplink="100mbit")
    report = measured("ring", lab=racks)
    ring, ours = report.row(RING, SIZES[1]), report.row("slipstream", SIZES[1])
    assert ring.uplink_bytes is not None
    assert ours.uplink_bytes is not None
    assert ring.uplink_bytes > 1.5 * ours.uplink_bytes
    rows = comm_table.as_json(report)["rows"]
    assert {row["least_uplink_bytes"] for row in rows if row["uplink_bytes"]} == {1_000_000}


def test_cross_traffic_flows_from_every_host_until_the_end() -> None:
    with Lab(LabSpec(hosts=3, rate="200mbit")) as lab:
        with cross_traffic(lab, "50mbit"):
            before, began = lab.counters(), time.monotonic()
            time.sleep(1.0)
            passed, seconds = lab.counters().since(before).hosts, time.monotonic() - began
        time.sleep(0.3)  # what was in buffers
        before = lab.counters()
        time.sleep(0.3)
        after = lab.counters().since(before).hosts
    for host in passed:
        assert 0.4 < host.sent_payload_bytes / seconds * 8 / 50e6 < 1.2
        assert 0.4 < host.received_payload_bytes / seconds * 8 / 50e6 < 1.2
    assert all(host.sent_payload_bytes < 100_000 for host in after)


@pytest.mark.slow("bench of communication")
def test_collectives_are_measured_beside_cross_traffic() -> None:
    report = measured(cross_traffic="100mbit", sizes=(1_000_000,))
    row = report.row("slipstream", 1_000_000)
    assert row.host_bytes is None  # they are not ours alone
    assert row.samples.median > 0.04  # which they take on an idle link


@pytest.mark.slow("bench of communication")
@pytest.mark.launcher("mpirun")
def test_mpi_reaches_the_hosts_of_the_lab() -> None:
    pytest.importorskip("mpi4py")
    report = measured("mpi", sizes=(100_000,), lab=LabSpec(hosts=2, rate="10mbit"))
    # 100,000 bytes take 84 ms over such a link, and no time where it is not used.
    assert report.row("mpi", 100_000).samples.median > 0.05


def measured(*peers: str, **fields: object) -> CommReport:
    """Measure allreduce between two slow hosts."""
    spec: dict[str, object] = {"lab": LabSpec(hosts=2, rate="200mbit"), "sizes": SIZES, **fields}
    return measure(CommSpec(peers=peers, rounds=1, warmup=0, **spec))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_benchmark_and_its_lab(
    number: signal.Signals, wait_until: Callable[[Callable[[], object]], None]
) -> None:
    options = ["--num-hosts", "2", "--rate", "1mbit", "--sizes", "10m", "--peers", "gloo"]
    process = subprocess.Popen(
        [COMMAND, "bench", "comm", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    wait_until(lambda: labs_of(process.pid) or process.poll() is not None)
    (record,) = labs_of(process.pid)
    wait_until(record.network.exists)
    process.send_signal(number)
    process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 128 + number
    assert not record.network.exists()
    assert labs_of(process.pid) == []


def labs_of(pid: int) -> list[labs.Record]:
    """Return the labs that a process has made."""
    return [each for each in labs.load_all() if each.owner is not None and each.owner[0] == pid]
