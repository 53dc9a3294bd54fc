"""Check that an engine's requirements are installed; name a remedy for a missing requirement."""

from __future__ import annotations

import importlib.util

from slipstream.processor import DEVICES, num_gpus

EXTRA = "pip install 'slipstream[infer]'"
NO_GPU = f"there is no NVIDIA GPU in {DEVICES}; see what `slipstream doctor` says"


def missing(package: str, install: str = EXTRA) -> str | None:
    """Return None if the package can be imported, else the reason and the remedy."""
    if importlib.util.find_spec(package) is not None:
        return None
    return f"the package {package} is not installed; {install}"


def missing_gpu() -> str | None:
    """Return None if there is an NVIDIA GPU, else `NO_GPU`."""
    return None if num_gpus() else NO_GPU
