"""Find Slipstream's net plugin for NCCL that is installed on this host."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from slipstream.errors import ConfigError
from slipstream.settings import nccl_plugin_environment

LIBRARY = "libnccl-net-slipstream.so"


def plugin_library() -> Path:
    """Return the path of the net plugin, which is installed beside the C++ engine.

    Raises:
        ConfigError: this installation has no plugin.
    """
    engine = importlib.util.find_spec("slipstream._core")
    if engine is None or engine.origin is None:
        raise ConfigError(f"{LIBRARY} is not installed, because Slipstream's engine is not built")
    library = Path(engine.origin).with_name(LIBRARY)
    if not library.is_file():
        raise ConfigError(
            f"{library} is missing; install Slipstream again on this host, from its wheel or with"
            " `make`, or leave out --nccl-plugin"
        )
    return library


def plugin_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make NCCL send through the plugin of this host.

    Args:
        environ: Environment of the ranks before these variables are added.

    Raises:
        ConfigError: this installation has no plugin.
    """
    return nccl_plugin_environment(plugin_library().parent, environ)


if __name__ == "__main__":
    print(plugin_library().parent)
