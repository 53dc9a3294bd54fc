"""Hosts as network namespaces, connected by bridges in a further namespace, the switch.

    host h, lab0 --- h<h> in the switch namespace, on bridge rack<r>
    rack<r>, up<r> --- down<r> on bridge spine           with two racks or more

At both ends of each link, the rate of the outgoing traffic is limited. Limits per connection are
set only on the interfaces of the hosts: every packet leaves its host through such an interface, so
further limits in the switch would have no effect.
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
INTERFACE = "lab0"  # name of the interface of every host
_SPINE = "spine"
# Settings of every host, independent of the settings of this machine: the default congestion
# control of Linux, and no metrics of earlier connections, so that runs do not influence each other.
_CONGESTION = "cubic"
_TCP = {"tcp_congestion_control": _CONGESTION, "tcp_no_metrics_save": "1"}
_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
_NAMES = Path("/etc/netns")
_KILL_SECONDS = 5.0  # time limit in seconds for killed processes to disappear

_log = logging.getLogger(__name__)

# Bytes of the headers of every segment: Ethernet 14, IPv4 20, TCP 20, and 12 for timestamps.
HEADER_BYTES = 66


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkCounters:
    """Traffic that a link has carried since it was made, including headers.

    Args:
        sent_bytes: Number of bytes from the host into the network, or from the rack to the spine.
        sent_packets: Number of packets from the host into the network, or from the rack to the
            spine.
        received_bytes: Number of bytes from the network to the host, or from the spine to the rack.
        received_packets: Number of packets from the network to the host, or from the spine to the
            rack.
        dropped_packets: Number of packets that full queues dropped, in both directions together.
    """

    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int
    dropped_packets: int

    @property
    def sent_payload_bytes(self) -> int:
        """Sent bytes without headers of TCP, IP and Ethernet; retransmissions are included."""
        return self.sent_bytes - HEADER_BYTES * self.sent_packets

    @property
    def received_payload_bytes(self) -> int:
        """Received bytes without the headers of TCP, IP and Ethernet."""
        return self.received_bytes - HEADER_BYTES * self.received_packets

    def since(self, earlier: LinkCounters) -> LinkCounters:
        """Return the traffic between an earlier reading and this reading."""
        return LinkCounters(
            sent_bytes=self.sent_bytes - earlier.sent_bytes,
            sent_packets=self.sent_packets - earlier.sent_packets,
            received_bytes=self.received_bytes - earlier.received_bytes,
            received_packets=self.received_packets - earlier.received_packets,
            dropped_packets=self.dropped_packets - earlier.dropped_packets,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LabCounters:
    """Counters of all links, read at the same time.

    Args:
        hosts: Counters of the link of each host.
        uplinks: Counters of each rack's link to the spine; empty if there is only one rack.
    """

    hosts: tuple[LinkCounters, ...]
    uplinks: tuple[LinkCounters, ...]

    def since(self, earlier: LabCounters) -> LabCounters:
        """Return the traffic between an earlier reading and this reading."""
        return LabCounters(
            hosts=_differences(self.hosts, earlier.hosts),
            uplinks=_differences(self.uplinks, earlier.uplinks),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """Namespaces and links of one lab. The object also exists before `create` and after `destroy`.

    Args:
        identifier: Text that is part of the name of each namespace, and differs between labs.
        spec: Description of the hosts, racks and rates.
    """

    identifier: str
    spec: LabSpec

    @property
    def switch(self) -> str:
        """Name of the namespace that has the bridges."""
        return f"{PREFIX}{self.identifier}-switch"

    def host(self, host: int) -> str:
        """Return the name of a host's namespace."""
        return f"{PREFIX}{self.identifier}-host{host}"

    def address(self, host: int) -> str:
        """Return the IPv4 address of a host."""
        return f"10.90.{self.spec.rack_of(host)}.{host + 1}"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names of the namespaces of all hosts and of the switch."""
        return (*(self.host(host) for host in range(self.spec.hosts)), self.switch)

    def exists(self) -> bool:
        """Return whether all namespaces exist."""
        return namespaces().issuperset(self.namespaces)

    def create(self) -> None:
        """Make all namespaces and links, and limit the rates; if this fails, remove everything.

        Raises:
            UnsupportedError: a command of ip or tc failed, or the links have a delay.
        """
        if self.spec.delay_seconds:
            raise UnsupportedError(
                f"delay is {self.spec.delay}; hosts in network namespaces allow 0s only; use a lab"
                " with a relay: --relay"
            )
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
        """Kill all processes in the namespaces, and remove the namespaces that exist."""
        existing = namespaces().intersection(self.namespaces)
        for name in existing:
            _kill_processes(name)
        run_batch("ip", None, [f"netns delete {name}" for name in sorted(existing)])
        for name in self.namespaces:
            shutil.rmtree(_NAMES / name, ignore_errors=True)

    def change(self, host: int, rate: str) -> Network:
        """Change the rate of a host's link, and return a `Network` with the new rate."""
        bits = parse_rate(rate)
        rates = self.spec.rates or (self.spec.rate,) * self.spec.hosts
        self._check_host(host)
        run_batch("tc", self.switch, change_link(f"h{host}", bits))
        run_batch("tc", self.host(host), change_link(INTERFACE, bits, self.spec.flow_caps))
        run_batch("ip", self.host(host), [_offload(bits)])
        rates = (*rates[:host], rate, *rates[host + 1 :])
        return replace(self, spec=replace(self.spec, rates=rates))

    def change_uplinks(self, rate: str) -> Network:
        """Change the rate of all uplinks, and return a `Network` with the new rate."""
        bits = parse_rate(rate)
        if self.spec.racks == 1:
            raise UsageError("the lab has no uplinks, because its hosts are in one rack")
        for rack in range(self.spec.racks):
            run_batch("tc", self.switch, change_link(f"up{rack}", bits))
            run_batch("tc", self.switch, change_link(f"down{rack}", bits))
        return replace(self, spec=replace(self.spec, uplink=rate))

    def set_carrier(self, host: int, *, up: bool) -> None:
        """Plug in or pull the cable of a host, so that its interface gets or loses the carrier."""
        self._check_host(host)
        run_batch("ip", self.switch, [f"link set h{host} {'up' if up else 'down'}"])

    def has_carrier(self, host: int) -> bool:
        """Return whether the cable of a host is plugged in."""
        self._check_host(host)
        (link,) = query("ip", self.switch, "link", "show", f"h{host}")
        return "UP" in link["flags"]

    def counters(self) -> LabCounters:
        """Read the counters of all links.

        The counters are those of the root queueing disciplines (qdiscs), which count the headers of
        each segment. The counters of an interface would count the headers of a segmentation-offload
        packet only once.
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
        """Write files with the host names host0, host1 and so on, because a lab has no name server.

        `ip netns exec` mounts the written files over /etc/hosts and /etc/resolv.conf.
        """
        addresses = [(host, self.address(host)) for host in range(self.spec.hosts)]
        entries = [f"{address} host{host}" for host, address in addresses]
        # PyTorch's store looks up the name of the peer of an IPv6 socket.
        entries += [f"::ffff:{address} host{host}.lab" for host, address in addresses]
        try:
            for host in range(self.spec.hosts):
                folder = _NAMES / self.host(host)
                folder.mkdir(parents=True)
                # All lab hosts share the host name of this machine; each resolves it to itself.
                machine = f"{self.address(host)} {socket.gethostname()}"
                lines = ["127.0.0.1 localhost", machine, *entries, ""]
                (folder / "hosts").write_text("\n".join(lines))
                (folder / "resolv.conf").write_text("")
        except PermissionError as error:  # in a user namespace, the process must not write to /etc
            _log.info("hosts of the lab have no names, only addresses: %s", error)

    def _switch_commands(self) -> list[str]:
        spec = self.spec
        racks = [f"rack{rack}" for rack in range(spec.racks)]
        bridges = [*racks, _SPINE] if spec.racks > 1 else racks
        lines = [f"link add {bridge} type bridge mcast_snooping 0" for bridge in bridges]
        lines += [f"link set {bridge} addrgenmode none up" for bridge in bridges]
        for host in range(spec.hosts):
            port, peer = f"h{host}", f"{INTERFACE} netns {self.host(host)}"
            lines += [f"link add {port} type veth peer name {peer}"]
            lines += [_attach(port, f"rack{spec.rack_of(host)}")]
        for rack in range(spec.racks if spec.racks > 1 else 0):
            up, down = f"up{rack}", f"down{rack}"
            lines += [f"link add {up} type veth peer name {down}"]
            lines += [_attach(up, f"rack{rack}"), _attach(down, _SPINE)]
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
            # IPv6 would bypass the limits per connection, and its control packets would be counted.
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
    """Add `_CONGESTION` to the congestion-control algorithms that namespaces may use."""
    allowed = _ALLOWED.read_text().split()
    if _CONGESTION in allowed:
        return
    try:
        _ALLOWED.write_text(" ".join([*allowed, _CONGESTION]))
    except OSError as error:
        raise UnsupportedError(
            f"hosts of a lab use the congestion control {_CONGESTION}, which {_ALLOWED} lacks and"
            f" which cannot be added: {error}; check whether the kernel supports it"
        ) from error


def _tcp_command() -> str:
    return " && ".join(f"echo {value} >/proc/sys/net/ipv4/{name}" for name, value in _TCP.items())


def _kill_processes(namespace: str) -> None:
    deadline = time.monotonic() + _KILL_SECONDS
    while pids := processes(namespace):
        if time.monotonic() > deadline:
            raise UnsupportedError(
                f"processes {pids} in namespace {namespace} do not end when killed, because they"
                " hang in the kernel; see /proc/PID/stack"
            )
        for pid in pids:
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
