"""The share of a GPU's memory that each rank may use, enforced by the frameworks themselves.

PyTorch (2.10 and newer) and JAX read the largest fraction from variables. TensorFlow is limited by
a module in PYTHONPATH, which sets the limit after a program has imported it. A rank that needs more
gets their error for lack of memory, and the ranks of other jobs on the GPU are not harmed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from slipstream.errors import ConfigError, reason_of
from slipstream.settings import gpu_share_environment, share_hook_environment

QUERY_SECONDS = 20.0
_HOOK = Path(__file__).parent / "share_hook"


def share_variables(gibibytes: float, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that limit a process to a share of the memory of this host's GPUs.

    Args:
        gibibytes: Share in GiB; 0 for no limit.
        environ: Environment, whose options for PyTorch's allocator are kept (default: that of this
            process).

    Raises:
        ConfigError: this host has no GPU of NVIDIA, or the share is larger than its memory.
    """
    if not gibibytes:
        return {}
    total = _least_memory_gib()
    if gibibytes > total:
        raise ConfigError(
            f"resources.gpu_memory is {gibibytes:g} GiB, and the GPUs of this host have {total:.1f}"
        )
    return {
        **gpu_share_environment(gibibytes / total, environ),
        **share_hook_environment(str(_HOOK), max(int(gibibytes * 1024), 1), environ),
    }


def _least_memory_gib() -> float:
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=QUERY_SECONDS, check=True
        )
        return min(int(line) for line in done.stdout.split()) / 1024
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ConfigError(
            f"resources.gpu_memory needs a GPU of NVIDIA, and nvidia-smi fails: {reason_of(error)}"
        ) from error
