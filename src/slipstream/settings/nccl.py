"""The variables that make NCCL use a net plugin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slipstream.settings.variables import variables


def nccl_plugin_environment(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make NCCL send through Slipstream's net plugin.

    NCCL before 2.26 finds a plugin only by its name in LD_LIBRARY_PATH. With NCCL_NET, NCCL fails
    if it does not find the plugin; without NCCL_NET, it would fall back to its own sockets.

    Args:
        folder: Folder that contains the plugin.
        environ: Environment of the ranks, as it is without the plugin.
    """
    chosen = {
        "NCCL_NET_PLUGIN": "slipstream",
        "NCCL_NET": "Slipstream",
        "LD_LIBRARY_PATH": ":".join(filter(None, (str(folder), environ.get("LD_LIBRARY_PATH")))),
    }
    interfaces = environ.get(variables()["iface"].name)
    if interfaces and not environ.get("NCCL_SOCKET_IFNAME"):
        chosen["NCCL_SOCKET_IFNAME"] = interfaces  # for NCCL's own first messages
    return chosen
