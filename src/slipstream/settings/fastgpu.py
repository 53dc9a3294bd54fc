"""The environment variables of FastGPU's scripts, under the names that they have there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipstream.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class FastGpuSettings:
    """The wishes of a script for FastGPU.

    Args:
        is_cost_confirmed: Whether machines are created without asking for the cost.
        data_disk_gib: Size of a further disk of each machine in GiB; 0 for none.
        open_to: Address that may use ssh, in CIDR notation; "" for that of this computer.
    """

    is_cost_confirmed: bool = False
    data_disk_gib: int = 0
    open_to: str = ""


def fastgpu_settings(environ: Mapping[str, str] = os.environ) -> FastGpuSettings:
    """Return the settings at this moment; scripts set them while they run.

    Args:
        environ: Environment variables (default: this process's environment).

    Raises:
        ConfigError: ALIYUN_DATA_DISK_SIZE is no number.
    """
    size = environ.get("ALIYUN_DATA_DISK_SIZE", "") or "0"
    if not size.isdecimal():
        raise ConfigError(
            f"ALIYUN_DATA_DISK_SIZE is {size!r}; set it to a number of GiB, such as 500"
        )
    return FastGpuSettings(
        is_cost_confirmed=environ.get("FASTGPU_SKIP_COST_CONFORM", "0") not in ("", "0"),
        data_disk_gib=int(size),
        open_to=environ.get("FASTGPU_OPEN_TO", ""),
    )


def values_of(names: Sequence[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the values of those variables that are set.

    Args:
        names: Names of variables.
        environ: Environment variables (default: this process's environment).
    """
    return {name: environ[name] for name in names if name in environ}
