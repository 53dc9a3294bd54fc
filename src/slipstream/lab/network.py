"""Hosts as network namespaces, on bridges in a namespace of their own.

    host h, lab0 --- h<h> in the switch namespace, on bridge rack<r>
    rack<r>, up<r> --- down<r> on bridge spine           with two racks or more

The outgoing side of each end is shaped. Caps of flows hold at the hosts' ends only: a flow that
has passed one needs no second.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path

from slipstream.errors import UnsupportedError, UsageError
from slipstream.lab.iproute import namespaces, processes, query, run_batch, run_inside
from slipstream.lab.rates import MAX_RATE, parse_rate
from slipstream.lab.shaping import (
    HOST_QUEUE_SECONDS,
    SWITCH_QUEUE_SECONDS,
    change_link,
    offload_bytes,
    shape_link,
)
from slipstream.lab.spec import LabSpec

PREFIX = "slipstream-lab-"
INTERFACE = "lab0"  # of every host
_SPINE = "spine"
# Of a host, whatever this machine has: cubic, as in any Linux that nobody has changed; and
# connections begin without what an earlier one to that host has learnt, from run to run.
_CONGESTION = "cubic"
_TCP = {"tcp_congestion_control": _CONGESTION, "tcp_no_metrics_save": "1"}
_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
_NAMES = Path("/etc/netns")
_KILL_SECONDS = 5.0

_log = logging.getLogger(__name__)

# Ethernet 14, IPv4 20, TCP 20 with 12 of timestamps: what every segment carries besides payload.
HEADER_BYTES = 66


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkCounters:
    """What has passed a link since it was made, as frames, each with its headers.

    Args:
        sent_bytes, sent_packets: from the host into the network, or from a rack to the spine.
        received_bytes, received_packets: the other way.
        dropped_packets: Packets that found the queue full, in both directions together.
    """

    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int
    dropped_packets: int

    @property
    def sent_payload_bytes(self) -> int:
        """Bytes sent without the headers of TCP, IP and Ethernet; repeated segments count."""
        return self.sent_bytes - HEADER_BYTES * self.sent_packets

    @property
    def received_payload_bytes(self) -> int:
        """Bytes received without the headers of TCP, IP and Ethernet."""
        return self.received_bytes - HEADER_BYTES * self.received_packets

    def since(self, earlier: LinkCounters) -> LinkCounters:
        """Return what has passed between two readings."""
        return LinkCounters(
            sent_bytes=self.sent_bytes - earlier.sent_bytes,
            sent_packets=self.sent_packets - earlier.sent_packets,
            received_bytes=self.received_bytes - earlier.received_bytes,
            received_packets=self.received_packets - earlier.received_packets,
            dropped_packets=self.dropped_packets - earlier.dropped_packets,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LabCounters:
    """The counters of all links at one moment.

    Args:
        hosts: Counters of the link of each host.
        uplinks: Counters of the link from each rack to the spine; none with one rack.
    """

    hosts: tuple[LinkCounters, ...]
    uplinks: tuple[LinkCounters, ...]

    def since(self, earlier: LabCounters) -> LabCounters:
        """Return what has passed between two readings."""
        return LabCounters(
            hosts=_differences(self.hosts, earlier.hosts),
            uplinks=_differences(self.uplinks, earlier.uplinks),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """The names of everything that belongs to one lab; what they name may not exist.

    Args:
        identifier: told apart from other labs by it.
        spec: hosts, racks and rates.
    """

    identifier: str
    spec: LabSpec

    @property
    def switch(self) -> str:
        """The namespace of the bridges."""
        return f"{PREFIX}{self.identifier}-switch"

    def host(self, host: int) -> str:
        """Return the namespace of a host."""
        return f"{PREFIX}{self.identifier}-host{host}"

    def address(self, host: int) -> str:
        """Return the IPv4 address of a host."""
        return f"10.90.{self.spec.rack_of(host)}.{host + 1}"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces of hosts and switch."""
        return (*(self.host(host) for host in range(self.spec.hosts)), self.switch)

    def exists(self) -> bool:
        """Return whether all namespaces are there."""
        return namespaces().issuperset(self.namespaces)

    def create(self) -> None:
        """Make namespaces and links, and shape them; after a failure nothing is left.

        Raises:
            UnsupportedError: ip or tc refused something.
        """
        try:
            run_batch("ip", None, [f"netns add {name}" for name in self.namespaces])
            self._write_names()
            _allow_congestion()
            run_batch("ip", self.switch, self._switch_commands())
            run_batch("tc", self.switch, self._switch_shapes())
            rates, caps = self.spec.link_rates, self.spec.flow_caps
            for host in range(self.spec.hosts):
                shape = shape_link(INTERFACE, rates[host], HOST_QUEUE_SECONDS, caps)
                run_batch("tc", self.host(host), shape)
                run_batch("ip", self.host(host), self._host_commands(host))
                run_inside(self.host(host), ["sh", "-c", _tcp_command()])
        except BaseException:
            self.destroy()
            raise

    def destroy(self) -> None:
        """Kill what runs in the namespaces and remove them, as far as they exist."""
        existing = namespaces().intersection(self.namespaces)
        for name in existing:
            _kill_processes(name)
        run_batch("ip", None, [f"netns delete {name}" for name in sorted(existing)])
        for name in self.namespaces:
            shutil.rmtree(_NAMES / name, ignore_errors=True)

    def change(self, host: int, rate: str) -> Network:
        """Give the link of a host another rate in both directions, while it carries traffic."""
        bits = parse_rate(rate)
        rates = self.spec.rates or (self.spec.rate,) * self.spec.hosts
        self._check_host(host)
        run_batch("tc", self.switch, change_link(f"h{host}", bits))
        run_batch("tc", self.host(host), change_link(INTERFACE, bits, self.spec.flow_caps))
        run_batch("ip", self.host(host), [_offload(bits)])
        rates = (*rates[:host], rate, *rates[host + 1 :])
        return replace(self, spec=replace(self.spec, rates=rates))

    def change_uplinks(self, rate: str) -> Network:
        """Give the links between racks and spine another rate."""
        bits = parse_rate(rate)
        if self.spec.racks == 1:
            raise UsageError("the lab has no uplink to change: its hosts are in one rack")
        for rack in range(self.spec.racks):
            run_batch("tc", self.switch, change_link(f"up{rack}", bits))
            run_batch("tc", self.switch, change_link(f"down{rack}", bits))
        return replace(self, spec=replace(self.spec, uplink=rate))

    def set_carrier(self, host: int, *, up: bool) -> None:
        """Pull the cable of a host, or put it back; its interface loses the carrier or gets it."""
        self._check_host(host)
        run_batch("ip", self.switch, [f"link set h{host} {'up' if up else 'down'}"])

    def has_carrier(self, host: int) -> bool:
        """Return whether the cable of a host is in."""
        self._check_host(host)
        (link,) = query("ip", self.switch, "link", "show", f"h{host}")
        return "UP" in link["flags"]

    def counters(self) -> LabCounters:
        """Read the counters of all links.

        They are those of the root qdiscs: an interface counts the headers of a
        segmentation-offload packet once, a qdisc once per segment.
        """
        inside = _qdisc_counts(self.switch)
        hosts = [
            _link(_qdisc_counts(self.host(host))[INTERFACE], inside[f"h{host}"])
            for host in range(self.spec.hosts)
        ]
        num_uplinks = self.spec.racks if self.spec.racks > 1 else 0
        uplinks = [_link(inside[f"up{rack}"], inside[f"down{rack}"]) for rack in range(num_uplinks)]
        return LabCounters(hosts=tuple(hosts), uplinks=tuple(uplinks))

    def _write_names(self) -> None:
        """Let the hosts know one another as host0, host1, ...: they have no name server.

        `ip netns exec` mounts these files over /etc/hosts and /etc/resolv.conf.
        """
        addresses = [(host, self.address(host)) for host in range(self.spec.hosts)]
        known = [f"{address} host{host}" for host, address in addresses]
        # The name of a peer of an IPv6 socket, which PyTorch's store looks up.
        known += [f"::ffff:{address} host{host}.lab" for host, address in addresses]
        try:
            for host in range(self.spec.hosts):
                folder = _NAMES / self.host(host)
                folder.mkdir(parents=True)
                own = f"{self.address(host)} {socket.gethostname()}"  # all share the machine's name
                (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", own, *known, ""]))
                (folder / "resolv.conf").write_text("")
        except PermissionError as error:  # in a user namespace, which may not write to /etc
            _log.info("hosts of the lab have addresses only: %s", error)

    def _switch_commands(self) -> list[str]:
        spec = self.spec
        racks = [f"rack{rack}" for rack in range(spec.racks)]
        bridges = [*racks, _SPINE] if spec.racks > 1 else racks
        lines = [f"link add {bridge} type bridge mcast_snooping 0" for bridge in bridges]
        lines += [f"link set {bridge} addrgenmode none up" for bridge in bridges]
        for host in range(spec.hosts):
            own, peer = f"h{host}", f"{INTERFACE} netns {self.host(host)}"
            lines += [f"link add {own} type veth peer name {peer}"]
            lines += [_attach(own, f"rack{spec.rack_of(host)}")]
        for rack in range(spec.racks if spec.racks > 1 else 0):
            own, peer = f"up{rack}", f"down{rack}"
            lines += [f"link add {own} type veth peer name {peer}"]
            lines += [_attach(own, f"rack{rack}"), _attach(peer, _SPINE)]
        return lines

    def _switch_shapes(self) -> list[str]:
        lines: list[str] = []
        for host, rate in enumerate(self.spec.link_rates):
            lines += shape_link(f"h{host}", rate, SWITCH_QUEUE_SECONDS)
        if (rate := self.spec.uplink_rate) is not None:
            for rack in range(self.spec.racks):
                lines += shape_link(f"up{rack}", rate, SWITCH_QUEUE_SECONDS)
                lines += shape_link(f"down{rack}", rate, SWITCH_QUEUE_SECONDS)
        return lines

    def _host_commands(self, host: int) -> list[str]:
        return [
            "link set lo up",
            # IPv6 would be a way around the caps of flows, and its own packets would be counted.
            f"link set {INTERFACE} addrgenmode none",
            f"address add {self.address(host)}/16 dev {INTERFACE}",
            _offload(min(self.spec.link_rates[host], self.spec.uplink_rate or MAX_RATE)),
            f"link set {INTERFACE} up",
        ]

    def _check_host(self, host: int) -> None:
        if not 0 <= host < self.spec.hosts:
            raise UsageError(f"the host is {host}; allowed: 0 to {self.spec.hosts - 1}")


def _attach(device: str, bridge: str) -> str:
    return f"link set {device} master {bridge} addrgenmode none up"


def _offload(rate: int) -> str:
    return f"link set {INTERFACE} gso_max_size {offload_bytes(rate)}"


def _allow_congestion() -> None:
    """Allow the congestion control machine-wide, because namespaces may choose only such."""
    allowed = _ALLOWED.read_text().split()
    if _CONGESTION in allowed:
        return
    try:
        _ALLOWED.write_text(" ".join([*allowed, _CONGESTION]))
    except OSError as error:
        raise UnsupportedError(
            f"hosts of a lab use the congestion control {_CONGESTION}, which {_ALLOWED} has not,"
            f" and which cannot be added there: {error}; see what the kernel has"
        ) from error


def _tcp_command() -> str:
    return " && ".join(f"echo {value} >/proc/sys/net/ipv4/{name}" for name, value in _TCP.items())


def _kill_processes(namespace: str) -> None:
    deadline = time.monotonic() + _KILL_SECONDS
    while found := processes(namespace):
        if time.monotonic() > deadline:
            raise UnsupportedError(
                f"processes {found} in namespace {namespace} do not end when killed; they hang in"
                " the kernel, see /proc/PID/stack"
            )
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


_Counts = tuple[int, int, int]


def _qdisc_counts(namespace: str) -> dict[str, _Counts]:
    roots = [item for item in query("tc", namespace, "qdisc", "show") if item.get("root")]
    return {item["dev"]: (item["bytes"], item["packets"], item["drops"]) for item in roots}


def _link(sent: _Counts, received: _Counts) -> LinkCounters:
    return LinkCounters(
        sent_bytes=sent[0],
        sent_packets=sent[1],
        received_bytes=received[0],
        received_packets=received[1],
        dropped_packets=sent[2] + received[2],
    )


def _differences(
    later: tuple[LinkCounters, ...], earlier: tuple[LinkCounters, ...]
) -> tuple[LinkCounters, ...]:
    return tuple(a.since(b) for a, b in zip(later, earlier, strict=True))
