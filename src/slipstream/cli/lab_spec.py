"""Conversion of a command's lab options into a description of the lab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slipstream.cli.options import split_list

if TYPE_CHECKING:
    from slipstream.lab import LabSpec

DEFAULT_HOSTS = 4
LAB_OPTIONS = ("num_hosts", "ranks_per_host", "rate", "flow_rate", "racks", "uplink", "delay")


def describes_lab(context: Any) -> bool:
    """Return whether the command line has an option that describes a lab."""
    sources = [context.get_parameter_source(option) for option in LAB_OPTIONS]
    return any(source is not None and source.name == "COMMANDLINE" for source in sources)


# over budget: an argument for each option of the lab
def lab_spec(
    num_hosts: int | None,
    ranks_per_host: int = 1,
    rate: str = "1gbit",
    flow_rate: str | None = None,
    racks: int = 1,
    uplink: str | None = None,
    delay: str = "0s",
) -> LabSpec:
    """Return the description of a lab.

    Args:
        num_hosts: Number of hosts (default: one per rate in `rate`, or 4 if `rate` is a single
            rate).
        ranks_per_host: Number of ranks on each host (default 1).
        rate: Bit rate of every host's link, or one bit rate per host, separated by commas (default
            1gbit).
        flow_rate: Highest bit rate of a connection, or one bit rate per path, separated by commas
            (default None: no limit). A path is a group of connections that share its bit rate.
        racks: Number of racks (default 1).
        uplink: Bit rate between a rack and the spine; None (the default) for a single rack.
        delay: Time from host to host in one direction (default 0s); other times need a relay.
    """
    from slipstream.lab import LabSpec

    rates, flow_rates = split_list(rate), split_list(flow_rate or "")
    each_rate = rates if len(rates) > 1 else ()
    return LabSpec(
        hosts=num_hosts or len(each_rate) or DEFAULT_HOSTS,
        ranks_per_host=ranks_per_host,
        rate=rates[0] if rates else rate,
        rates=each_rate,
        flow_rate=flow_rates[0] if len(flow_rates) == 1 else None,
        flow_rates=flow_rates if len(flow_rates) > 1 else (),
        racks=racks,
        uplink=uplink,
        delay=delay,
    )
