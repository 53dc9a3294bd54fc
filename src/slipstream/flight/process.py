"""Facts about this process and its host, for its flight record."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from slipstream.flight.record import ClockReading, MemoryReading

# Packages whose versions explain faults, if the process has loaded them.
_PACKAGES = ("numpy", "torch", "tensorflow", "jax")
_SECRET = re.compile(r"(?i)(key|token|secret|pass(w|phrase)|pwd|credential|auth(?!or)|bearer)")
_HIDDEN = "***"
_MOST_ARGUMENTS = 60
_MOST_CHARACTERS = 300


def clock_reading() -> ClockReading:
    """Return both clocks of this host."""
    return ClockReading(wall=time.time(), monotonic=time.monotonic())


def command_of_process() -> tuple[str, ...]:
    """Return the program and arguments of this process without values that look like secrets."""
    return shown_command([sys.executable, *sys.orig_argv[1:]])


def shown_command(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command in which values that look like secrets are replaced.

    `--api-key VALUE`, `--api-key=VALUE` and `api_key=VALUE` lose their values.
    """
    shown: list[str] = []
    hides_next = False
    for argument in argv[:_MOST_ARGUMENTS]:
        name, has_value, _ = argument.partition("=")
        is_secret = _SECRET.search(name) is not None and os.sep not in name
        if hides_next and not argument.startswith("-"):
            shown.append(_HIDDEN)
        elif is_secret and has_value:
            shown.append(f"{name}={_HIDDEN}")
        else:
            shown.append(argument[:_MOST_CHARACTERS])
        hides_next = is_secret and not has_value and argument.startswith("-")
    return tuple(shown)


def versions() -> dict[str, str]:
    """Return the versions of Python, Linux, Slipstream and the loaded frameworks."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version(), "linux": platform.release()}
    for package in ("slipstream", *(name for name in _PACKAGES if name in sys.modules)):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def start_of_process() -> float:
    """Return the wall clock at the start of this process; 0 if the kernel does not tell."""
    try:
        stat = Path("/proc/self/stat").read_text()
        ticks = int(stat[stat.rindex(")") + 2 :].split()[19])
        since_boot = float(Path("/proc/uptime").read_text().split()[0])
        return time.time() - since_boot + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def load_averages() -> tuple[float, ...]:
    """Return the load averages of this host over 1, 5 and 15 minutes."""
    return os.getloadavg()


def memory_reading() -> MemoryReading:
    """Return the memory of this host and of this process."""
    host, own = _table("/proc/meminfo"), _table("/proc/self/status")
    return MemoryReading(
        total=host.get("MemTotal"),
        available=host.get("MemAvailable"),
        limit=_limit(),
        resident=own.get("VmRSS"),
        peak=own.get("VmHWM"),
    )


def _table(path: str) -> dict[str, int]:
    """Return the lines `name: number kB` of a file of the kernel, in bytes."""
    try:
        text = Path(path).read_text()
    except OSError:
        return {}
    return {name: int(number) * 1024 for name, number in re.findall(r"(\w+):\s+(\d+) kB", text)}


def _limit() -> int | None:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        # Version 1 of control groups writes a number near 2**63 for "no limit".
        return int(text) if text.isdigit() and int(text) < 1 << 60 else None
    return None
