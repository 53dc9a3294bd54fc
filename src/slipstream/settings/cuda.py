"""Variables of NVIDIA's driver that change the speed of collectives on GPUs."""

from __future__ import annotations

from collections.abc import Mapping


def cuda_connections(environ: Mapping[str, str]) -> str | None:
    """Return CUDA_DEVICE_MAX_CONNECTIONS, the number of a GPU's queues, or None if it is not set.

    Args:
        environ: Environment of this process.
    """
    return environ.get("CUDA_DEVICE_MAX_CONNECTIONS")
