"""Checks of the network: which interface is used, which are not, and why."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slipstream.cli.findings.finding import Finding, State
from slipstream.errors import ConfigError, reason_of
from slipstream.settings import Settings
from slipstream.units import format_bit_rate

# An address for documentation (RFC 5737). The route to it is the default route; nothing is sent.
ANYWHERE = "198.51.100.1"
CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
INTERFACES = Path("/sys/class/net")
RDMA = Path("/sys/class/infiniband")


class JudgedAddress(Protocol):
    """An address of this host, and whether the communication engine would use it."""

    @property
    def interface(self) -> str:
        """Interface of the address."""
        ...

    @property
    def address(self) -> str:
        """The address, as a text."""
        ...

    @property
    def reason(self) -> str:
        """Reason why the address is used, or why it is not used."""
        ...

    @property
    def usable(self) -> bool:
        """Whether this rank would listen at the address."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class InterfaceSpeed:
    """Speed and packet size of an interface, as the kernel reports them.

    Args:
        bits_per_second: Speed of the link; None if the kernel does not know it, as for most virtual
            interfaces.
        mtu: Size of the largest packet in bytes.
    """

    bits_per_second: int | None
    mtu: int


def network_findings(environ: Mapping[str, str], peer: str | None) -> list[Finding]:
    """Return the findings about interfaces, transports and congestion control.

    Args:
        environ: Environment of this process.
        peer: Host to which the route is looked up; None for the default route.
    """
    try:
        if peer is not None:
            socket.getaddrinfo(peer, None)
        from slipstream.comm.config import explain_listen_addresses  # the core may not be built

        settings = Settings.from_environment(environ)
        candidates = explain_listen_addresses(settings, peer or ANYWHERE)
    except ConfigError as error:
        chosen = [_interface("wrong", "not chosen", str(error))]
    except OSError as error:
        text = f"no route to {peer} ({reason_of(error)})"
        chosen = [_interface("wrong", text, "name a host that is known here")]
    except ImportError:
        chosen = [_interface("absent", "not chosen, since the core is not built")]
    else:
        chosen = interface_findings(candidates, links(), towards=peer)
    return [*chosen, _transports(), _congestion(environ)]


def links(folder: Path = INTERFACES) -> dict[str, InterfaceSpeed]:
    """Return speed and packet size of each interface of this host, by interface name."""
    found: dict[str, InterfaceSpeed] = {}
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (entry / "mtu").is_file():
            continue
        try:
            megabits = int((entry / "speed").read_text())
        except (OSError, ValueError):  # loopback, and interfaces that are down
            megabits = -1
        rate = megabits * 10**6 if megabits > 0 else None
        found[entry.name] = InterfaceSpeed(
            bits_per_second=rate, mtu=int((entry / "mtu").read_text())
        )
    return found


def rdma_devices(folder: Path = RDMA) -> list[str]:
    """Return the names of this host's RDMA devices."""
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


def interface_findings(
    candidates: Sequence[JudgedAddress], known: Mapping[str, InterfaceSpeed], *, towards: str | None
) -> list[Finding]:
    """Return a finding about the choice of an interface, and one about each interface.

    Args:
        candidates: Addresses of this host, the one that the engine prefers first.
        known: Speed and packet size of each interface of this host, by interface name.
        towards: Host to which the route was looked up; None for the default route.
    """
    names = list(dict.fromkeys(each.interface for each in candidates))
    by_name = {name: [each for each in candidates if each.interface == name] for name in names}
    used = [name for name in names if any(each.usable for each in by_name[name])]
    lines = [_line(name, by_name[name], known, used) for name in names]
    without = [name for name in known if name not in by_name]
    if without:
        text = "not used: the interface has no IP address"
        lines.append(_network(", ".join(without), "absent", text))
    return [_choice(candidates, known, used, towards), *lines]


def _choice(
    candidates: Sequence[JudgedAddress],
    known: Mapping[str, InterfaceSpeed],
    used: Sequence[str],
    towards: str | None,
) -> Finding:
    if not used:
        reasons = "; ".join(f"{each.interface}: {each.reason}" for each in candidates)
        return _interface("wrong", f"none can be used ({reasons})", "change SLIPSTREAM_IFACE")
    first = candidates[0]
    reason = first.reason.replace(f"route to {ANYWHERE}", "default route")
    return _interface(
        "ok",
        f"{first.interface} ({first.address}): {reason if towards is None else first.reason}",
        _faster(used, known),
    )


def _faster(used: Sequence[str], known: Mapping[str, InterfaceSpeed]) -> str:
    """Return the advice to use another interface that is faster than the chosen one."""
    rates = {name: known[name].bits_per_second for name in used if name in known}
    own = rates.get(used[0])
    others = {name: rate for name, rate in rates.items() if rate is not None}
    if own is None or max(others.values()) <= own:
        return ""
    best = max(others, key=lambda name: others[name])
    return (
        f"SLIPSTREAM_IFACE=={best} has {format_bit_rate(others[best])}, and {used[0]} has"
        f" {format_bit_rate(own)}; use it if all hosts are on the network of {best}"
    )


def _line(
    name: str,
    addresses: Iterable[JudgedAddress],
    known: Mapping[str, InterfaceSpeed],
    used: Sequence[str],
) -> Finding:
    """Return the finding about one interface."""
    usable = [each.address for each in addresses if each.usable]
    if not usable:
        reasons = dict.fromkeys(each.reason for each in addresses)
        return _network(name, "absent", f"not used: {'; '.join(reasons)}")
    order = "tried first" if name == used[0] else f"tried after {used[used.index(name) - 1]}"
    return _network(name, "ok", f"{order}: {', '.join(usable)}{_rate(known.get(name))}")


def _rate(link: InterfaceSpeed | None) -> str:
    if link is None:
        return ""
    rate = link.bits_per_second
    return f"; {format_bit_rate(rate) if rate else 'speed not known'}, MTU {link.mtu}"


def _transports() -> Finding:
    text = "shared memory within this host, TCP to others"
    devices = rdma_devices()
    if devices:
        text += f"; {', '.join(devices)} for RDMA: only NCCL uses it"
    return _network("transports", "ok", text)


def _congestion(environ: Mapping[str, str]) -> Finding:
    """Return the finding about the congestion control in use.

    If bulk data flows in both directions, acknowledgements wait in queues. BBR mistakes the delays
    of acknowledgements for a slower network, so cubic is faster within a cluster.
    """
    name = "congestion control"
    try:
        chosen = Settings.from_environment(environ).congestion
        used = chosen or CONGESTION.read_text().strip()
    except (ConfigError, OSError):
        return _network(name, "absent", "not known")
    remedy = "SLIPSTREAM_CONGESTION=cubic is faster within a cluster" if used == "bbr" else ""
    return _network(name, "ok", used, remedy)


def _interface(state: State, text: str, remedy: str = "") -> Finding:
    return _network("interface", state, text, remedy)


def _network(name: str, state: State, text: str, remedy: str = "") -> Finding:
    return Finding(topic="Network", name=name, state=state, text=text, remedy=remedy)
