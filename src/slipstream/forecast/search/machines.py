"""Clusters to search: hosts that clouds rent out, or hosts that the user owns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from slipstream.errors import UsageError
from slipstream.forecast.hardware import Device, Hardware, Link, Offer
from slipstream.forecast.simulate.job import Precision
from slipstream.forecast.simulate.network import Cluster
from slipstream.units import parse_bit_rate

# Share of the line rate that is payload: 1448 of 1538 bytes, for TCP with timestamps in Ethernet
# frames of 1500 bytes.
_PAYLOAD = 0.94
# Rate in Gbit/s from which a network counts as RDMA. The offers of hardware/data/prices.toml with
# this rate or more have EFA, InfiniBand or RoCE; the others have at most 100 Gbit/s, mostly with
# TCP.
_RDMA_GBIT = 400.0
# Latency of one step of a collective, like in hardware/data/links.toml: with TCP, half of netperf's
# round trip between two machines of a cloud; with RDMA, NCCL's latency of a network step (its
# src/graph/tuning.cc).
_TCP_LATENCY_US, _RDMA_LATENCY_US = 33.0, 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostType:
    """Type of host with its price.

    Args:
        name: Human-readable name, such as "aws p4d.24xlarge".
        cluster: Device, devices per host, and links of hosts of this type.
        dollars_per_hour: Price of one host in dollars per hour; None if unknown.
        offer: Offer of a cloud; None for hosts that the user owns.
        precision: Data type in which the devices compute matrix products.
    """

    name: str
    cluster: Cluster
    dollars_per_hour: float | None = None
    offer: Offer | None = None
    precision: Precision = "fp32"


def best_precision(device: Device) -> Precision:
    """Return the 16-bit type that a device supports in hardware, or "fp32" if there is none.

    bfloat16 is preferred because it needs no loss scaling.

    Args:
        device: Device with its peak FLOP rates.
    """
    formats: tuple[tuple[Precision, str], ...] = (("bf16", "bfloat16"), ("fp16", "float16"))
    for precision, dtype in formats:
        if device.tflops.get(dtype, 0.0) > device.tflops["float32"]:
            return precision
    return "fp32"


def rented(
    hardware: Hardware,
    *,
    devices: Sequence[str] = (),
    clouds: Sequence[str] = (),
    markets: Sequence[str] = ("on-demand",),
    network: Link | None = None,
) -> Iterator[HostType]:
    """Yield the hosts that clouds rent out.

    Args:
        hardware: Hardware tables, which contain the offers of clouds.
        devices: Names or aliases of allowed devices (default empty: all).
        clouds: Names of allowed clouds (default empty: all).
        markets: Allowed markets, "on-demand" and "spot" (default on-demand only).
        network: Network that replaces the network of every offer (default None: no replacement).

    Raises:
        UsageError: A device or cloud is unknown.
    """
    names = {hardware.device(text).name for text in devices}
    cloud_names = {offer.cloud for offer in hardware.offers}
    strange = sorted(set(clouds) - cloud_names)
    if strange:
        raise UsageError(
            f"no cloud is called {strange[0]!r}; known: {', '.join(sorted(cloud_names))}"
        )
    for offer in hardware.offers:
        is_allowed = (not names or offer.device in names) and (not clouds or offer.cloud in clouds)
        if is_allowed and offer.market in markets:
            yield HostType(
                name=f"{offer.cloud} {offer.instance}"
                + (" spot" if offer.market == "spot" else ""),
                cluster=own(
                    hardware, offer.device, offer.count, network or _network(offer)
                ).cluster,
                dollars_per_hour=offer.dollars_per_hour,
                offer=offer,
            )


def own(
    hardware: Hardware,
    device: str,
    per_host: int,
    network: Link | None = None,
    dollars_per_hour: float | None = None,
) -> HostType:
    """Return the type of host that the user describes.

    Args:
        hardware: Hardware tables, which contain the device and its links.
        device: Name or alias of the device.
        per_host: Number of devices per host.
        network: Network between hosts, with the rate of all ports of one host together (default
            None: the hosts are not connected).
        dollars_per_hour: Price of one host in dollars per hour (default None: unknown).
    """
    described = hardware.device(device)
    inside = hardware.link(described.device_link)
    cluster = Cluster(device=described, per_host=per_host, inside=inside, between=network)
    name = f"{per_host} x {described.name}" + (f", {network.name}" if network else "")
    return HostType(name=name, cluster=cluster, dollars_per_hour=dollars_per_hour)


def network(hardware: Hardware, text: str) -> Link:
    """Return a network between hosts, found by its name or made from a rate.

    Args:
        hardware: Hardware tables, which contain the links.
        text: Name of a link, such as "infiniband-ndr", or rate, such as "25" (Gbit/s), "25g",
            "25 Gb/s" or "200Mbit/s".

    Raises:
        UsageError: The text is neither a known link nor a rate.
    """
    digits = text.lower().replace("gb/s", "").replace("gbit/s", "").strip(" g")
    try:
        return ethernet(float(digits))
    except ValueError:
        pass
    with suppress(UsageError):
        return ethernet(parse_bit_rate(text, "network") / 1e9)
    try:
        return hardware.link(text)
    except UsageError as error:
        raise UsageError(f"{error}; or a rate such as 25g or 200Mbit/s") from error


def ethernet(gbit: float) -> Link:
    """Return an Ethernet network with a given nominal rate.

    Args:
        gbit: Nominal rate of all ports of a host together, in Gbit/s.

    Raises:
        UsageError: The rate is not above 0.
    """
    if not gbit > 0:
        raise UsageError(f"the network is {gbit:g} Gbit/s; more than 0 is needed")
    rdma = gbit >= _RDMA_GBIT
    return Link(
        name=f"{gbit:g} Gbit/s",
        kind="network",
        gbyte_per_s=gbit / 8 * (1.0 if rdma else _PAYLOAD),
        latency_us=_RDMA_LATENCY_US if rdma else _TCP_LATENCY_US,
        source="nominal",
    )


def several(machine: HostType, hosts: int) -> str:
    """Return text that names several hosts, such as "2 x aws p4d.24xlarge".

    Args:
        machine: Type of every host.
        hosts: Number of hosts, at least 1.
    """
    return f"{hosts} x {machine.name}"


def memory_gib(machine: HostType, hosts: int) -> float:
    """Return the total memory of all devices of the hosts in GiB.

    Args:
        machine: Type of every host.
        hosts: Number of hosts, at least 1.
    """
    return machine.cluster.device.memory_gib * machine.cluster.per_host * hosts


def _network(offer: Offer) -> Link | None:
    return ethernet(offer.network_gbit_per_s) if offer.network_gbit_per_s else None


def distinct(machines: Iterable[HostType]) -> list[HostType]:
    """Return the cheapest type of host for each combination of devices and network.

    Args:
        machines: Types of hosts, in any order.
    """
    best: dict[tuple[str, int, float], HostType] = {}
    for machine in machines:
        between = machine.cluster.between
        key = (
            machine.cluster.device.name,
            machine.cluster.per_host,
            between.gbyte_per_s if between else 0.0,
        )
        held = best.get(key)
        price = machine.dollars_per_hour or 0.0
        if held is None or price < (held.dollars_per_hour or 0.0):
            best[key] = machine
    return list(best.values())
