"""The engine of a name."""

from __future__ import annotations

from slipstream.cluster.engines.protocol import Engine
from slipstream.errors import UsageError


def make_engine(name: str) -> Engine:
    """Return the engine of a name.

    Args:
        name: Name of the engine, such as "ssh".

    Raises:
        UsageError: there is no such engine.
    """
    match name:
        case "local":
            from slipstream.cluster.engines.local import LocalEngine

            return LocalEngine()
        case "ssh":
            from slipstream.cluster.engines.ssh import SshEngine

            return SshEngine()
        case _:
            raise UsageError(f"the engine is {name!r}; allowed: local, ssh")
