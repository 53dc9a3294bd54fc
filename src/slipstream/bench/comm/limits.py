"""Lower bounds of a collective's bytes and time, computed from links and algorithms.

`size` is the number of bytes of the larger buffer of a rank, in float32: the whole result of an
all_gather, the whole input of a reduce_scatter. Ranks are counted host by host, hosts rack by rack.
What leaves a group of ranks at least, if every byte crosses its link as rarely as it can:

- allreduce: 2 (g-1)/g size of g equal groups; reduce_scatter and all_gather half of it;
- broadcast: the size, from the group that has the root into each other one;
- all_to_all: each of the m ranks of a group has size/n bytes for each of the n-m others.
"""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.bench.limits import GOODPUT
from slipstream.codecs import CODECS, wire_share
from slipstream.lab import LabSpec

COLLECTIVES = ("allreduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")

# Share of float32's bytes that each codec sends between hosts.
CODEC_SHARE: Mapping[str, float] = {
    **{codec: wire_share(codec) for codec in CODECS},
    "int8+feedback": wire_share("int8"),
}


def bus_factor(collective: str, ranks: int) -> float:
    """Return the factor from size divided by time to bus bandwidth.

    It makes collectives on any number of ranks comparable with the rate of a rank's link.
    """
    if collective == "broadcast":
        return 1.0
    return (2 if collective == "allreduce" else 1) * (ranks - 1) / ranks


def least_bytes(collective: str, size: float, groups: int, ranks: int) -> float:
    """Return the lower bound of the bytes over the busiest link in one direction.

    Args:
        collective: one of `COLLECTIVES`.
        size: bytes of the larger buffer of a rank.
        groups: equal ones, with one link each: hosts or racks.
        ranks: Ranks in all groups together.
    """
    if groups == 1:
        return 0.0
    if collective == "all_to_all":
        members = ranks // groups
        return members * size / ranks * (ranks - members)
    return bus_factor(collective, groups) * size


def host_bytes(spec: LabSpec, collective: str, size: float, codec: str = "none") -> float:
    """Return the lower bound of the bytes that the busiest host's link sends or receives."""
    return least_bytes(collective, size, spec.hosts, spec.world_size) * CODEC_SHARE[codec]


def uplink_bytes(spec: LabSpec, collective: str, size: float, codec: str = "none") -> float:
    """Return the lower bound of the bytes that the busiest uplink sends or receives."""
    return least_bytes(collective, size, spec.racks, spec.world_size) * CODEC_SHARE[codec]


def host_bits_per_second(spec: LabSpec) -> int:
    """Return the rate of the slowest host's link with enough connections to fill it."""
    rate = min(spec.link_rates)
    return min(rate, sum(spec.flow_caps)) if spec.flow_caps else rate


def limit_seconds(
    spec: LabSpec, collective: str, size: float, codec: str = "none", goodput: float = GOODPUT
) -> float:
    """Return the lower bound of the time of any algorithm on these links.

    Args:
        spec: the lab.
        collective: one of `COLLECTIVES`.
        size: bytes of the larger buffer of a rank.
        codec: Codec of the data between hosts.
        goodput: share of a link's rate that is payload.
    """
    on_links = host_bytes(spec, collective, size, codec) / host_bits_per_second(spec)
    on_uplinks = (
        uplink_bytes(spec, collective, size, codec) / spec.uplink_rate if spec.uplink_rate else 0.0
    )
    return max(on_links, on_uplinks) * 8 / goodput
