"""The public address of this machine, which a security group lets in."""

from __future__ import annotations

import ipaddress
import urllib.request

from slipstream.cluster.outside import outside
from slipstream.errors import ConfigError, reason_of

# A service of AWS that answers with the address of the caller.
SERVICE = "https://checkip.amazonaws.com"
SECONDS = 10.0


def own_network() -> str:
    """Return the public address of this machine as a network of one address, such as 1.2.3.4/32.

    Raises:
        ConfigError: the service does not answer; then the job file must name the address.
    """
    try:
        with outside("http checkip"), urllib.request.urlopen(SERVICE, timeout=SECONDS) as answer:
            address = ipaddress.ip_address(answer.read(64).decode().strip())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the public address of this machine cannot be found ({reason_of(error)}); set"
            " cloud.open_to in the job file, such as [203.0.113.7/32]"
        ) from error
    return f"{address}/{address.max_prefixlen}"
