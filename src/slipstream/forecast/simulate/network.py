"""Seconds that collectives take: latency and rate of each dimension of the topology.

A group of ranks is cut as the engine cuts it: those of a host are one dimension, hosts another.
Chunks follow one another through the dimensions, so the slowest sets the rate and latencies add.

Source: Chan, Heimlich, Purkayastha, van de Geijn 2007, "Collective communication: theory, practice,
and experience", doi 10.1002/cpe.1206; Cho, Finkler, Kung 2017, arXiv 1708.02188, for dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slipstream.forecast.hardware import Device, Link

# Eight H100 sum 1 MB in 115 us (github.com/IBM/pytorch-communication-benchmarks, issue 1): a launch
# of 27 us, and two rings of eight that are full after 7/8 of this each.
_GRAPH_RAMP_US = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Hosts of equal devices.

    Args:
        device: on every rank.
        per_host: devices of a host.
        inside: what joins devices of a host.
        between: what joins hosts; None: there is one host. All ports of a host together.
        adds: switches between hosts add what these send, as InfiniBand's do (SHARP).
    """

    device: Device
    per_host: int
    inside: Link
    between: Link | None = None
    adds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRates:
    """What software reaches of links, fitted on published measurements.

    Args:
        inside: share of the rate between devices of a host, 0 to 1.
        between: share of the rate between hosts.
        launch_us: of a collective, whatever its size.
        ramp_us: of a ring until all its links are full, beside their latency.
    """

    inside: float = 0.72
    between: float = 0.85
    launch_us: float = 20.0
    ramp_us: float = 30.0

    def in_graph(self) -> WireRates:
        """Return what collectives reach that are part of a CUDA graph.

        Most of what a ring takes until it is full is hosts that launch it one after the other.
        """
        return replace(self, ramp_us=min(_GRAPH_RAMP_US, self.ramp_us))


@dataclass(frozen=True, slots=True)
class Dimension:
    """Ranks that are joined by links of one kind.

    Args:
        size: ranks.
        rate: bytes per second that each rank has for itself.
        latency: seconds of one step.
        adds: switches between them add what they send.
    """

    size: int
    rate: float
    latency: float
    adds: bool = False


def dimensions(
    cluster: Cluster, wire: WireRates, size: int, stride: int = 1
) -> tuple[Dimension, ...]:
    """Returns the dimensions of a group of ranks.

    Args:
        cluster: on which it is; ranks fill a host before the next.
        wire: what software reaches of its links.
        size: ranks of the group.
        stride: ranks from one of the group to the next; all groups of that kind talk at once.
    """
    inside = min(size, max(1, cluster.per_host // stride))
    hosts = math.ceil(size / inside)
    found: list[Dimension] = []
    if inside > 1:
        among = cluster.inside.share(min(cluster.per_host, inside * stride), cluster.per_host)
        rate = cluster.inside.gbyte_per_s * 1e9 * wire.inside * among
        found.append(Dimension(inside, rate, cluster.inside.latency_us * 1e-6))
    if hosts > 1:
        if cluster.between is None:
            raise ValueError(f"{size} ranks {stride} apart need hosts that are joined")
        rate = (
            cluster.between.gbyte_per_s
            * 1e9
            * wire.between
            / min(cluster.per_host, inside * stride)
        )
        latency = cluster.between.latency_us * 1e-6
        found.append(Dimension(hosts, rate, latency, cluster.adds))
    return tuple(found)


def reduce_scatter(num_bytes: float, group: Sequence[Dimension], wire: WireRates) -> float:
    """Returns the seconds of a reduce-scatter; of an all-gather too.

    Args:
        num_bytes: of the whole, on each rank before (reduce-scatter) or after (all-gather).
        group: its dimensions, the inner first.
        wire: what software reaches.
    """
    if not group:
        return 0.0
    slowest, latency, left = 0.0, wire.launch_us * 1e-6, num_bytes
    for dimension in group:
        piece = left / dimension.size
        slow = piece / dimension.rate * (dimension.size - 1)
        slowest = max(slowest, slow)
        latency += dimension.latency * (dimension.size - 1)
        latency += wire.ramp_us * 1e-6 * (dimension.size - 1) / dimension.size
        left = piece
    return slowest + latency


def all_reduce(num_bytes: float, group: Sequence[Dimension], wire: WireRates) -> float:
    """Returns the seconds of an all-reduce: reduce-scatter up the dimensions, all-gather down, or
    recursive doubling where that is sooner. Switches that add spare hosts the ring.

    Args:
        num_bytes: on each rank.
        group: its dimensions, the inner first.
        wire: what software reaches.
    """
    if not group:
        return 0.0
    launch = wire.launch_us * 1e-6
    if group[-1].adds:
        # Each host sends its share up and gets the sum, from the end of one to that of another.
        *inner, hosts = group
        share = num_bytes / math.prod(each.size for each in inner)
        inside = 2 * reduce_scatter(num_bytes, inner, wire) - launch if inner else launch
        return max(inside, launch + share / hosts.rate) + 2 * hosts.latency
    rings = 2 * reduce_scatter(num_bytes, group, wire) - launch
    doubling = launch
    for dimension in group:
        rounds = math.ceil(math.log2(dimension.size))
        doubling += rounds * (dimension.latency + num_bytes / dimension.rate)
    return min(rings, doubling)


def all_to_all(num_bytes: float, group: Sequence[Dimension], wire: WireRates) -> float:
    """Returns the seconds in which each rank sends a different part of its bytes to every other.

    Args:
        num_bytes: that each rank has for all of them.
        group: its dimensions, the inner first.
        wire: what software reaches.
    """
    if not group:
        return 0.0
    ranks = math.prod(dimension.size for dimension in group)
    slowest, latency = 0.0, wire.launch_us * 1e-6
    reached = 1
    for dimension in group:
        share = reached * (dimension.size - 1) / ranks
        slowest = max(slowest, num_bytes * share / dimension.rate)
        latency += dimension.latency
        reached *= dimension.size
    return slowest + latency


def send(num_bytes: float, cluster: Cluster, wire: WireRates, stride: int) -> float:
    """Returns the seconds from a rank to the one `stride` ranks on, as all ranks do it at once.

    Args:
        num_bytes: of the message.
        cluster: on which they are.
        wire: what software reaches.
        stride: ranks between the two; from `per_host` on they are on different hosts.
    """
    launch = wire.launch_us * 1e-6
    if stride < cluster.per_host or cluster.between is None:
        rate = cluster.inside.gbyte_per_s * 1e9 * wire.inside
        return launch + cluster.inside.latency_us * 1e-6 + num_bytes / rate
    rate = cluster.between.gbyte_per_s * 1e9 * wire.between / cluster.per_host
    return launch + cluster.between.latency_us * 1e-6 + num_bytes / rate
