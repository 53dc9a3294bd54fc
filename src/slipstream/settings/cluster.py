"""The environment variables of the cluster: where its records are, and a trap for tests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from slipstream.settings.variables import variables


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for the records of runs, clusters and the queue.

    Args:
        environ: Environment variables (default: this process's environment).

    Raises:
        ConfigError: SLIPSTREAM_HOME is no path.
    """
    variable = variables()["home"]
    text = environ.get(variable.name)
    return variable.kind.read(variable.name, text) if text else Path.home() / ".slipstream"


def checkpoint_environment(place: str) -> dict[str, str]:
    """Return the variable that tells ranks where their checkpoints belong; none for "".

    Args:
        place: Folder or URL.
    """
    return {variables()["checkpoint"].name: place} if place else {}


def stopping_call(environ: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """Return the outside call at which this process kills itself; None for no such call.

    The first element is "before" or "after", the second is the number of the call, from 0 on.

    Args:
        environ: Environment variables (default: this process's environment).
    """
    text = environ.get(variables()["stop_at"].name)
    if not text:
        return None
    moment, _, number = text.partition(":")
    return moment, int(number)
