"""Engines that come as Python packages: whether they are there, and what to do if not."""

from __future__ import annotations

import importlib.util

EXTRA = "pip install 'slipstream[infer]'"


def missing(package: str, install: str = EXTRA) -> str | None:
    """None where the package can be imported, else why not and what to do."""
    if importlib.util.find_spec(package) is not None:
        return None
    return f"the package {package} is not installed; {install}"
