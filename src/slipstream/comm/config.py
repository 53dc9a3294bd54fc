"""Configuration of the engine, from the settings of the process."""

from __future__ import annotations

import socket

from slipstream import _core
from slipstream.comm.profile import stored_streams
from slipstream.settings import InterfaceFilter, Settings, loopback_address

_BYTES_PER_MBIT = 125_000


def interface_filter_text(interfaces: InterfaceFilter | None) -> str:
    """Return the allowed network interfaces in NCCL's syntax; "" if all are allowed."""
    if interfaces is None:
        return ""
    prefix = ("^" if interfaces.exclude else "") + ("=" if interfaces.exact else "")
    return prefix + ",".join(interfaces.names)


def choose_listen_addresses(settings: Settings, towards: str) -> list[_core.ListenAddress]:
    """Return the addresses on which this rank can listen, the best first, each with a reason.

    The call may block while it resolves a host name.

    Args:
        settings: Settings of this process; only SLIPSTREAM_IFACE is used.
        towards: Name of a host of the job, such as MASTER_ADDR, or "" if no host is known. The
            network interface that leads to this host comes first.

    Raises:
        ConfigError: SLIPSTREAM_IFACE excludes all addresses.
    """
    return _core.choose_listen_addresses(interface_filter_text(settings.iface), towards)


def explain_listen_addresses(settings: Settings, towards: str) -> list[_core.ListenAddress]:
    """Return the addresses on which this rank can listen, followed by this host's other addresses.

    Each address has a reason for or against it. The call may block while it resolves a host name.

    Args:
        settings: Settings of this process; only SLIPSTREAM_IFACE is used.
        towards: Name of a host of the job, or "" if no host is known.
    """
    return _core.explain_listen_addresses(interface_filter_text(settings.iface), towards)


def engine_config(settings: Settings, towards: str | None) -> _core.Config:
    """Return the part of the settings that the engine uses.

    Args:
        settings: Settings of this process.
        towards: Name of a host of the job, such as MASTER_ADDR, or None for a job of one process,
            which needs no network. The engine prefers the network interface that leads to the host.

    Raises:
        ConfigError: SLIPSTREAM_IFACE excludes all addresses.
    """
    if towards is None:
        bind = [loopback_address()]
    else:
        bind = [choice.address for choice in choose_listen_addresses(settings, towards)]
    return _core.Config(
        bind=bind,
        host_name=socket.gethostname(),
        host_id=settings.host_id or "",
        rack=settings.rack or "",
        dimensions=list(settings.dimensions),
        streams=settings.streams,
        first_streams=stored_streams(settings.profile),
        tls=settings.tls,
        congestion=settings.congestion or "",
        dscp=settings.dscp,
        pacing_bytes=settings.pacing_mbit * _BYTES_PER_MBIT,
        segment_bytes=settings.segment_bytes,
        eager_bytes=settings.eager_bytes,
        connect_timeout=settings.connect_timeout_seconds,
        peer_timeout=settings.peer_timeout_seconds,
        stall_after=settings.stall_seconds,
        timeout=settings.timeout_seconds,
        algorithm=settings.algorithm,
    )
