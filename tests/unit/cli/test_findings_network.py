"""What the doctor says about interfaces: which one is used, which are not, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slipstream.cli.findings.finding import Finding
from slipstream.cli.findings.network import InterfaceSpeed, interface_findings, links, rdma_devices


@dataclass(frozen=True)
class Address:
    """An address, as the engine judges it."""

    interface: str
    address: str
    reason: str
    usable: bool = True


ETH0 = Address("eth0", "10.0.0.7", "route to 198.51.100.1")
ETH0_V6 = Address("eth0", "fd00::7", "interface of the route to 198.51.100.1")
IB0 = Address("ib0", "192.168.5.7", "an interface that is up")
DOCKER0 = Address("docker0", "172.17.0.1", "a bridge of containers", usable=False)
KNOWN = {
    "docker0": InterfaceSpeed(bits_per_second=None, mtu=1500),
    "eth0": InterfaceSpeed(bits_per_second=10**9, mtu=1500),
    "ib0": InterfaceSpeed(bits_per_second=100 * 10**9, mtu=4092),
    "wlan0": InterfaceSpeed(bits_per_second=None, mtu=1500),
}


def found(*candidates: Address, towards: str | None = None) -> dict[str, Finding]:
    """Return the findings about a host with some addresses, by name."""
    return {each.name: each for each in interface_findings(candidates, KNOWN, towards=towards)}


def test_the_chosen_interface_is_named_with_the_reason() -> None:
    shown = found(ETH0, ETH0_V6, IB0, DOCKER0)["interface"]
    assert (shown.state, shown.text) == ("ok", "eth0 (10.0.0.7): default route")
    to_peer = Address("eth0", "10.0.0.7", "route to node7")
    assert found(to_peer, towards="node7")["interface"].text.endswith("route to node7")


def test_every_interface_has_a_line_with_its_turn_or_the_reason_why_it_is_not_used() -> None:
    shown = found(ETH0, ETH0_V6, IB0, DOCKER0)
    assert shown["eth0"].text == "tried first: 10.0.0.7, fd00::7; 1gbit, MTU 1500"
    assert shown["ib0"].text == "tried after eth0: 192.168.5.7; 100gbit, MTU 4092"
    assert (shown["docker0"].state, shown["docker0"].text) == (
        "absent",
        "not used: a bridge of containers",
    )
    assert shown["wlan0"].text == "not used: the interface has no IP address"


def test_a_faster_interface_is_pointed_out() -> None:
    assert found(ETH0, IB0)["interface"].remedy == (
        "SLIPSTREAM_IFACE==ib0 has 100gbit, and eth0 has 1gbit; use it if all hosts are on the"
        " network of ib0"
    )
    assert found(IB0, ETH0)["interface"].remedy == ""


def test_no_usable_interface_is_wrong_and_every_reason_is_named() -> None:
    down = Address("eth0", "10.0.0.7", "the interface is down", usable=False)
    shown = found(down, DOCKER0)["interface"]
    assert shown.state == "wrong"
    assert "eth0: the interface is down; docker0: a bridge of containers" in shown.text


def test_links_have_the_speed_that_the_kernel_knows(tmp_path: Path) -> None:
    for name, speed in (("eth0", "25000\n"), ("veth1", "-1\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed").write_text(speed)
        (tmp_path / name / "mtu").write_text("9000\n")
    (tmp_path / "bonding_masters").touch()  # a file that stands among the interfaces
    assert links(tmp_path) == {
        "eth0": InterfaceSpeed(bits_per_second=25 * 10**9, mtu=9000),
        "veth1": InterfaceSpeed(bits_per_second=None, mtu=9000),
    }
    assert "lo" in links()


def test_rdma_devices_are_listed_by_name(tmp_path: Path) -> None:
    assert rdma_devices(tmp_path / "none") == []
    for name in ("mlx5_1", "mlx5_0"):
        (tmp_path / name).mkdir()
    assert rdma_devices(tmp_path) == ["mlx5_0", "mlx5_1"]
