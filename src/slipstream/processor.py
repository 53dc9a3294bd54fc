"""The processor and the GPUs of this host, as the operating system describes them."""

from __future__ import annotations

import platform
from pathlib import Path

_DESCRIPTION = Path("/proc/cpuinfo")
DEVICES = Path("/dev")  # has a file nvidiaN for each NVIDIA GPU that this container may use


def processor_name() -> str:
    """Return the model name of the processor, or its architecture if no name is known."""
    return _field("model name") or platform.machine()


def num_gpus() -> int:
    """Return the number of NVIDIA GPUs that this host or container has, without asking the driver.

    The driver would have to start, after which a process must not fork.
    """
    return sum(path.name[6:].isdecimal() for path in DEVICES.glob("nvidia*"))


def processor_flags() -> tuple[str, ...]:
    """Return the names of the instruction set extensions, as Linux spells them."""
    return tuple((_field("flags") or _field("Features")).split())


def _field(name: str) -> str:
    """Return the first value of a field in /proc/cpuinfo, or "" if the field is missing."""
    try:
        lines = _DESCRIPTION.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    values = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in values if key.strip() == name), "")
