"""Duration of collectives, from the latency and rate of each dimension of the topology.

A group of ranks has two dimensions, as in Slipstream's communication engine: the ranks of a host
form one dimension, and the hosts form the other. Chunks pass through the dimensions one after
another, so the slowest dimension sets the rate, and the latencies add up.

Source: Chan, Heimlich, Purkayastha, van de Geijn 2007, "Collective communication: theory, practice,
and experience", doi 10.1002/cpe.1206; Cho, Finkler, Kung 2017, arXiv 1708.02188, for dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slipstream.forecast.hardware import Device, Link

# Microseconds until all links of a ring are busy in a CUDA graph. Eight H100 sum 1 MB in 115 us
# (github.com/IBM/pytorch-communication-benchmarks, issue 1): the launch takes 27 us, and
# reduce-scatter and all-gather each wait for 7/8 of this time.
_GRAPH_RAMP_US = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Hosts with equal devices.

    Args:
        device: Device of every rank.
        per_host: Devices per host.
        inside: Link between the devices of a host.
        between: Network between hosts, all ports of a host combined (default None: a single host).
        adds: Whether the network switches sum the data of the hosts, like InfiniBand SHARP (default
            False).
    """

    device: Device
    per_host: int
    inside: Link
    between: Link | None = None
    adds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRates:
    """Reached shares of link rates, and latencies of collectives, both fitted to measurements.

    Args:
        inside: Reached share of the link rate within a host, 0 to 1 (default 0.72).
        between: Reached share of the network rate between hosts, 0 to 1 (default 0.85).
        launch_us: Time in microseconds to launch a collective, whatever its size (default 20).
        ramp_us: Time until all links of a ring are busy, in addition to latency, in microseconds
            (default 30).
    """

    inside: float = 0.72
    between: float = 0.85
    launch_us: float = 20.0
    ramp_us: float = 30.0

    def in_graph(self) -> WireRates:
        """Return these rates for collectives that a CUDA graph launches.

        Only `ramp_us`, the time until all links of a ring are busy, is shorter. Without a CUDA
        graph, the hosts launch a collective one after another, so the last links become busy late.
        """
        return replace(self, ramp_us=min(_GRAPH_RAMP_US, self.ramp_us))


@dataclass(frozen=True, slots=True)
class Dimension:
    """Ranks that are connected by links of one kind.

    Args:
        size: Number of ranks.
        rate: Bytes per second available to each rank.
        latency: Latency of one step in seconds.
        adds: Whether the switches sum the data of the ranks (default False).
    """

    size: int
    rate: float
    latency: float
    adds: bool = False


def dimensions(
    cluster: Cluster, wire: WireRates, size: int, stride: int = 1
) -> tuple[Dimension, ...]:
    """Return the dimensions of a group: its ranks within a host, then its hosts.

    A dimension with a single rank or host is left out.

    Args:
        cluster: Cluster of the ranks; the ranks fill one host before the next host.
        wire: Calibrated rates of communication.
        size: Number of ranks in the group.
        stride: Difference between the indices of neighbouring ranks of the group (default 1). All
            groups with the same stride communicate at the same time.
    """
    inside = min(size, max(1, cluster.per_host // stride))
    hosts = math.ceil(size / inside)
    group: list[Dimension] = []
    if inside > 1:
        among = cluster.inside.share(min(cluster.per_host, inside * stride), cluster.per_host)
        rate = cluster.inside.gbyte_per_s * 1e9 * wire.inside * among
        group.append(Dimension(inside, rate, cluster.inside.latency_us * 1e-6))
    if hosts > 1:
        if cluster.between is None:
            raise ValueError(
                f"{size} ranks at a distance of {stride} need several hosts and a network"
            )
        rate = (
            cluster.between.gbyte_per_s
            * 1e9
            * wire.between
            / min(cluster.per_host, inside * stride)
        )
        latency = cluster.between.latency_us * 1e-6
        group.append(Dimension(hosts, rate, latency, cluster.adds))
    return tuple(group)


def reduce_scatter(num_bytes: float, group: Sequence[Dimension], wire: WireRates) -> float:
    """Return the seconds of a reduce-scatter; an all-gather takes the same time.

    Args:
        num_bytes: Size of the whole tensor in bytes, which every rank has before a reduce-scatter
            or after an all-gather.
        group: Dimensions of the group: ranks within a host, then hosts.
        wire: Calibrated rates of communication.
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
    """Return the seconds of an all-reduce.

    The time is that of the faster of two algorithms: a reduce-scatter followed by an all-gather, or
    recursive doubling. If network switches sum the data, hosts need no ring.

    Args:
        num_bytes: Size in bytes of the tensor that each rank contributes to the sum.
        group: Dimensions of the group: ranks within a host, then hosts.
        wire: Calibrated rates of communication.
    """
    if not group:
        return 0.0
    launch = wire.launch_us * 1e-6
    if group[-1].adds:
        # Each host sends its share to the switches and receives the sum.
        *inner, hosts = group
        share = num_bytes / math.prod(dimension.size for dimension in inner)
        inside = 2 * reduce_scatter(num_bytes, inner, wire) - launch if inner else launch
        return max(inside, launch + share / hosts.rate) + 2 * hosts.latency
    rings = 2 * reduce_scatter(num_bytes, group, wire) - launch
    doubling = launch
    for dimension in group:
        rounds = math.ceil(math.log2(dimension.size))
        doubling += rounds * (dimension.latency + num_bytes / dimension.rate)
    return min(rings, doubling)


def all_to_all(num_bytes: float, group: Sequence[Dimension], wire: WireRates) -> float:
    """Return the seconds of an all-to-all, in which every rank sends a part to every other rank.

    Args:
        num_bytes: Bytes that each rank sends to all ranks together.
        group: Dimensions of the group: ranks within a host, then hosts.
        wire: Calibrated rates of communication.
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
    """Return the seconds of a message from one rank to another, while all other ranks send too.

    Args:
        num_bytes: Size of the message in bytes.
        cluster: Cluster of the ranks.
        wire: Calibrated rates of communication.
        stride: Difference between the rank indices of the sender and the receiver. If it is at
            least `cluster.per_host`, they are on different hosts.
    """
    launch = wire.launch_us * 1e-6
    if stride < cluster.per_host or cluster.between is None:
        rate = cluster.inside.gbyte_per_s * 1e9 * wire.inside
        return launch + cluster.inside.latency_us * 1e-6 + num_bytes / rate
    rate = cluster.between.gbyte_per_s * 1e9 * wire.between / cluster.per_host
    return launch + cluster.between.latency_us * 1e-6 + num_bytes / rate
