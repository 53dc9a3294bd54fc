"""The processor of this host, as the operating system describes it."""

from __future__ import annotations

import platform
from pathlib import Path

_DESCRIPTION = Path("/proc/cpuinfo")


def processor_name() -> str:
    """Return the model name of the processor, or its architecture if no name is known."""
    return _field("model name") or platform.machine()


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
