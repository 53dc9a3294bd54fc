"""What engines need: whether it is there, and what to do if not."""

from __future__ import annotations

import importlib.util
from pathlib import Path

EXTRA = "pip install 'slipstream[infer]'"
GPUS = Path("/proc/driver/nvidia/gpus")  # one entry for each that the driver has
NO_GPU = "there is no GPU of NVIDIA here"


def missing(package: str, install: str = EXTRA) -> str | None:
    """None where the package can be imported, else why not and what to do."""
    if importlib.util.find_spec(package) is not None:
        return None
    return f"the package {package} is not installed; {install}"


def missing_gpu() -> str | None:
    """None where there is a GPU of NVIDIA, else `NO_GPU`."""
    return None if GPUS.is_dir() and any(GPUS.iterdir()) else NO_GPU
