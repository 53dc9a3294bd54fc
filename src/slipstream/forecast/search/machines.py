"""Clusters that can be had: those that clouds rent out, or those that a user has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from slipstream.errors import UsageError
from slipstream.forecast.hardware import Device, Hardware, Link, Offer
from slipstream.forecast.simulate.job import Precision
from slipstream.forecast.simulate.network import Cluster

# Of a network's line rate, what payload gets: TCP in frames of 1500 bytes.
_PAYLOAD = 0.94
# Vendors' networks for training of at least this rate are RDMA.
_RDMA_GBIT = 400.0
_TCP_LATENCY_US, _RDMA_LATENCY_US = 33.0, 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostType:
    """A kind of host and what it costs.

    Args:
        name: for people, as "aws p4d.24xlarge".
        cluster: of such hosts.
        dollars_per_hour: of a host; None: not known, as of one's own.
        offer: that it is; None: the user's own.
        precision: the format in which its devices compute products.
    """

    name: str
    cluster: Cluster
    dollars_per_hour: float | None = None
    offer: Offer | None = None
    precision: Precision = "fp32"


def best_precision(device: Device) -> Precision:
    """Returns the format of 16 bits that a device is made for; "fp32" if it is made for none.

    Args:
        device: the device whose peaks tell; bfloat16, which needs no scaling of the loss, goes
            first.
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
    """Yields what clouds rent out.

    Args:
        hardware: with the offers.
        devices: that are allowed, by name or alias; empty: all.
        clouds: that are allowed; empty: all.
        markets: "on-demand" or "spot".
        network: in the place of the offers' own.

    Raises:
        UsageError: a device or cloud is not known.
    """
    names = {hardware.device(text).name for text in devices}
    known = {offer.cloud for offer in hardware.offers}
    strange = sorted(set(clouds) - known)
    if strange:
        raise UsageError(f"no cloud is called {strange[0]!r}; known: {', '.join(sorted(known))}")
    for offer in hardware.offers:
        wanted = (not names or offer.device in names) and (not clouds or offer.cloud in clouds)
        if wanted and offer.market in markets:
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
    """Returns a host that a user names.

    Args:
        hardware: with the device.
        device: by name or alias.
        per_host: devices of a host.
        network: of a host; None: hosts are not joined.
        dollars_per_hour: of a host.
    """
    found = hardware.device(device)
    inside = hardware.link(found.device_link)
    cluster = Cluster(device=found, per_host=per_host, inside=inside, between=network)
    name = f"{per_host} x {found.name}" + (f", {network.name}" if network else "")
    return HostType(name=name, cluster=cluster, dollars_per_hour=dollars_per_hour)


def network(hardware: Hardware, text: str) -> Link:
    """Returns the network of a host by a link's name or in Gbit/s.

    Args:
        hardware: with links.
        text: "infiniband-ndr", or "25", "25g", "25 Gb/s".

    Raises:
        UsageError: it is neither.
    """
    digits = text.lower().replace("gb/s", "").replace("gbit/s", "").strip(" g")
    try:
        return ethernet(float(digits))
    except ValueError:
        return hardware.link(text)


def ethernet(gbit: float) -> Link:
    """Returns a network of all of a host's ports together.

    Args:
        gbit: nominal rate, 1e9 bits per second.

    Raises:
        UsageError: it is not above 0.
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
    """Returns hosts for people.

    Args:
        machine: the kind of every host.
        hosts: the number of hosts, at least 1.
    """
    return f"{hosts} x {machine.name}"


def memory_gib(machine: HostType, hosts: int) -> float:
    """Returns the memory of all devices of some hosts.

    Args:
        machine: the kind of every host.
        hosts: the number of hosts, at least 1.
    """
    return machine.cluster.device.memory_gib * machine.cluster.per_host * hosts


def _network(offer: Offer) -> Link | None:
    return ethernet(offer.network_gbit_per_s) if offer.network_gbit_per_s else None


def distinct(machines: Iterable[HostType]) -> list[HostType]:
    """Returns machines without those that another of the same devices and network undercuts.

    Args:
        machines: any.
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
