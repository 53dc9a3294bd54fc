"""Free ports of this host, for the ranks that an agent starts."""

import random
import socket
from collections.abc import Iterable

# Ports from 20000 to 29999 lie below the kernel's range for outgoing connections.
_PORTS = (20000, 30000)


def find_free_port_pair(taken: Iterable[int] = ()) -> int:
    """Return an even port of this host that is free, and whose next port is free too.

    Args:
        taken: Even ports that may not be returned (default none).
    """
    while True:
        port = random.randrange(*_PORTS, 2)
        if port not in taken and all(_is_free(candidate) for candidate in (port, port + 1)):
            return port


def _is_free(port: int) -> bool:
    try:
        with socket.socket() as probe:
            probe.bind(("", port))
    except OSError:
        return False
    return True
