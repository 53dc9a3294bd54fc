"""Lower bounds of the bytes that a collective sends over a link, and of its time in seconds.

`size` is the number of bytes of the larger of a rank's two buffers: of the result of an all_gather,
or of the input of a reduce_scatter. All elements are float32. Ranks are numbered host by host, and
hosts rack by rack. A group is a host or a rack. With n ranks in g equal groups of m ranks each, a
collective sends at least this many bytes out of a group:

- an allreduce sends 2 (g-1)/g size; a reduce_scatter or an all_gather sends half as many bytes;
- a broadcast sends size bytes out of the root's group, and each other group receives size bytes;
- an all_to_all sends size/n from each of the m ranks of a group to each of the n-m other ranks.
"""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.bench.limits import GOODPUT
from slipstream.codecs import CODECS, wire_share
from slipstream.lab import LabSpec

COLLECTIVES = ("allreduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")

# Bytes that each codec sends between hosts, relative to float32.
CODEC_SHARE: Mapping[str, float] = {
    **{codec: wire_share(codec) for codec in CODECS},
    "int8+feedback": wire_share("int8"),
}


def bus_factor(collective: str, ranks: int) -> float:
    """Return the factor that turns size divided by time into the bus bandwidth of a collective.

    The bus bandwidth of any collective on any number of ranks is comparable with the rate of a
    rank's link.
    """
    if collective == "broadcast":
        return 1.0
    return (2 if collective == "allreduce" else 1) * (ranks - 1) / ranks


def least_bytes(collective: str, size: float, groups: int, ranks: int) -> float:
    """Return the lower bound of the bytes that the busiest link carries in one direction.

    Args:
        collective: Name of the collective, from `COLLECTIVES`.
        size: Size in bytes of the larger buffer of a rank.
        groups: Number of groups of ranks. Each group is a host or a rack with one link, and all
            groups have the same number of ranks.
        ranks: Number of ranks in all groups together.
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
    """Return the lower bound of the bytes that the busiest rack's uplink sends or receives."""
    return least_bytes(collective, size, spec.racks, spec.world_size) * CODEC_SHARE[codec]


def host_bits_per_second(spec: LabSpec) -> int:
    """Return the highest total bit rate of parallel connections over the slowest host's link."""
    rate = min(spec.link_rates)
    return min(rate, sum(spec.flow_caps)) if spec.flow_caps else rate


def limit_seconds(
    spec: LabSpec, collective: str, size: float, codec: str = "none", goodput: float = GOODPUT
) -> float:
    """Return the fewest seconds in which any algorithm can run a collective on a lab's links.

    Args:
        spec: Description of the lab.
        collective: Name of the collective, from `COLLECTIVES`.
        size: Size in bytes of the larger buffer of a rank.
        codec: Codec that encodes the data sent between hosts (default "none").
        goodput: Share of a link's rate that carries payload (default `GOODPUT`).
    """
    on_links = host_bytes(spec, collective, size, codec) / host_bits_per_second(spec)
    on_uplinks = (
        uplink_bytes(spec, collective, size, codec) / spec.uplink_rate if spec.uplink_rate else 0.0
    )
    return max(on_links, on_uplinks) * 8 / goodput
