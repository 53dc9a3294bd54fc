"""The environment variables around flight records: the folder, and what a record may contain."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from slipstream.settings.variables import variables

# Variables that explain a fault and hold no secret. All others stay out of flight records.
_NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "NCCL_NET",
    "NCCL_SOCKET_IFNAME",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
)


def recorded_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that a flight record contains; none of them holds a secret.

    Args:
        environ: Environment variables (default: this process's environment).
    """
    settings = [each.name for each in variables().values() if not each.kind.secret]
    return {name: environ[name] for name in (*_NAMES, *settings) if name in environ}


def flight_environment(folder: Path) -> dict[str, str]:
    """Return the variable that makes ranks write their flight records into a folder."""
    return {variables()["flight_dir"].name: str(folder)}
