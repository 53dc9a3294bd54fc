"""Environment variables that lead the connections of a lab's ranks through a relay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def relay_environment(library: Path, address: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that load a library into a rank and tell it where the relay is.

    Args:
        library: Path of libslipstream-relay.so.
        address: Text from `Relay.address_for`.
        environ: Environment of the rank, as it is without the relay.
    """
    loaded = filter(None, (str(library), environ.get("LD_PRELOAD")))
    return {"LD_PRELOAD": ":".join(loaded), "LAB_RELAY": address}
