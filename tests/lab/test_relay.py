"""A lab without namespaces, whose links are a relay."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstream.errors import UnsupportedError
from slipstream.lab import Lab, LabSpec, RelayLab, open_lab
from slipstream.lab.relay import PAYLOAD_SHARE, RelayLink

pytestmark = [pytest.mark.alone]

MBIT = 1_000_000
COMMAND = str(Path(sys.executable).with_name("slipstream"))
RANKS = Path(__file__).parent / "ranks"
PING, RACE, REDIAL, MANY = (
    str(RANKS / f"{name}.py") for name in ("ping", "race", "redial", "many")
)
# The programs of every test share the processors with the relay.
TOLERANCE = 0.1

Transfer = Callable[..., list[Any]]


@pytest.mark.parametrize("streams", [1, 8])
def test_all_connections_together_have_the_rate_of_a_link(transfer: Transfer, streams: int) -> None:
    with RelayLab(LabSpec(hosts=2, rate="200mbit")) as lab:
        (report,) = transfer(lab, 20_000_000, "0:1", streams=streams)
        sent = lab.counters().hosts[0]
    assert report.rate == pytest.approx(200 * MBIT * PAYLOAD_SHARE, rel=TOLERANCE)
    assert 20_000_000 <= sent.sent_payload_bytes < 20_100_000


def test_each_connection_has_its_own_path(transfer: Transfer) -> None:
    with RelayLab(LabSpec(hosts=2, rate="200mbit", flow_rate="40mbit")) as lab:
        (report,) = transfer(lab, 4_000_000, "0:1", streams=2)
    for rate in report.stream_rates:
        assert rate == pytest.approx(40 * MBIT * PAYLOAD_SHARE, rel=TOLERANCE)


def test_no_connection_passes_the_relay_while_its_port_begins_to_listen() -> None:
    """One of some thousand did, while the port was open and not yet in the relay's table."""
    with RelayLab(LabSpec(hosts=2)) as lab:
        environ = {"LAB_ADDRESSES": ",".join(lab.addresses)}
        result = lab.run([RACE, "300"], environ=environ, ranks_per_host=1)
    assert result.lines[0] == ("0",)


def test_racks_share_their_uplink(transfer: Transfer) -> None:
    spec = LabSpec(hosts=4, rate="200mbit", racks=2, uplink="100mbit")
    with RelayLab(spec) as lab:
        reports = transfer(lab, 4_000_000, "0:2", "1:3")
        uplinks = lab.counters().uplinks
    assert sum(report.rate for report in reports) < 105 * MBIT
    assert uplinks[0].sent_payload_bytes >= 8_000_000
    assert uplinks[1].received_payload_bytes >= 8_000_000


def test_a_delay_counts_in_each_direction() -> None:
    with RelayLab(LabSpec(hosts=2, delay="20ms")) as lab:
        result = lab.run([PING])
    round_trip = float(result.lines[0][-1])
    assert 0.04 <= round_trip < 0.06


def test_a_peer_that_dies_resets_its_connections_and_nobody_listens_afterwards() -> None:
    with RelayLab(LabSpec(hosts=2)) as lab:
        result = lab.run([PING, "die"], check=False)
    assert result.lines[0][-1] == "ended: gone; again: ConnectionRefusedError"


def test_a_socket_that_was_refused_can_dial_again(tmp_path: Path) -> None:
    """Linux gives the socket another port, and still names the earlier one."""
    with RelayLab(LabSpec(hosts=2)) as lab:
        environ = {"REFUSED": str(tmp_path / "refused")}
        result = lab.run([REDIAL], environ=environ, timeout_seconds=20)
    assert result.lines[1] == ("welcome",)


def test_a_relay_may_open_many_files() -> None:
    """A connection takes two files of the relay, which may open more than its parent."""
    limits = ["prlimit", "--nofile=256:20000", COMMAND, "lab", "run", "--relay"]
    done = subprocess.run(
        [*limits, "--num-hosts", "2", "--", MANY], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "300 answers" in done.stdout


FEW_FILES = """
import os, resource, socket, time
from slipstream.lab import LabSpec
from slipstream.lab.relay import Relay

def answer(client, server):
    '''Return what became of a client: "reset", or "served" if its byte arrived.'''
    try:
        client.sendall(b"x")
        if client.recv(1) == b"":
            return "reset"
    except ConnectionError:
        return "reset"
    except TimeoutError:
        served, _ = server.accept()
        kept.append(served)
        return "served" if served.recv(1) == b"x" else "lost"

with Relay(LabSpec(hosts=2)) as relay:
    port = int(relay.address_for(0).split(":")[1])
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(10)
    wanted = server.getsockname()[1]
    relay._table[wanted] = 2
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    clients = [socket.socket() for _ in range(4)]
    kept = []
    for client in clients:
        client.bind(("127.0.0.1", 0))
        client.settimeout(1)
        at = client.getsockname()[1]
        relay._table[65536 + at] = 1
        row = 2 * 65536 + 2 * at
        relay._table[row : row + 2] = wanted.to_bytes(2, "little")
    # Some kernels take the file of the next client before it comes and some when it comes, so that
    # which file is lacking (a client's, its server's, that of the client after it) depends on them.
    for spare, client in enumerate(clients[:3]):
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, limits[1]))
        client.connect(("127.0.0.1", port))
        time.sleep(0.3)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        print("with few files", answer(client, server))
    clients[3].connect(("127.0.0.1", port))
    print("at last", answer(clients[3], server))
"""


def test_a_relay_without_files_says_so_and_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", FEW_FILES], capture_output=True, text=True)
    *few, last = done.stdout.splitlines()
    assert len(few) == 3, done.stderr
    assert set(few) <= {"with few files reset", "with few files served"}
    assert last == "at last served"
    assert "the relay cannot accept a connection now: [Errno 24]" in done.stderr
    assert "Traceback" not in done.stderr


def test_links_of_a_relay_cannot_be_changed_and_namespaces_have_no_delay() -> None:
    with RelayLab(LabSpec(hosts=2)) as lab, pytest.raises(UnsupportedError, match="with a relay"):
        lab.cut(0)
    with pytest.raises(UnsupportedError, match="delay is 5ms"):
        Lab(LabSpec(hosts=2, delay="5ms")).up()


def test_a_relay_is_taken_where_it_is_needed() -> None:
    with open_lab(LabSpec(hosts=2), relay=True) as lab:
        assert lab.is_relayed
    with open_lab(LabSpec(hosts=2, delay="5ms")) as lab:
        assert lab.is_relayed


def test_without_privileges_a_run_has_a_relay() -> None:
    """Root without capabilities, as in a container, cannot make namespaces."""
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]
    done = subprocess.run(
        [*drop, COMMAND, "lab", "run", "--num-hosts", "2", "--", PING],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "a lab of its own, with a relay" in done.stderr


def test_a_link_that_was_idle_lends_two_milliseconds() -> None:
    link = RelayLink(int(8e6 / PAYLOAD_SHARE))  # a byte takes a microsecond
    assert link.carry(1000, at=10.0) == (pytest.approx(9.998), pytest.approx(9.999))
    assert link.carry(4000, at=10.0) == (pytest.approx(9.999), pytest.approx(10.003))
    assert link.carry(1000, at=10.0) == (pytest.approx(10.003), pytest.approx(10.004))
