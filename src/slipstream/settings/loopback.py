"""The address at which the processes of one host reach each other."""

from __future__ import annotations

import socket


def loopback_address() -> str:
    """Return 127.0.0.1, or ::1 on a host that has no IPv4."""
    with socket.socket(socket.AF_INET) as probe:
        try:
            probe.bind(("127.0.0.1", 0))
        except OSError:
            return "::1"
    return "127.0.0.1"
