"""Description of the machine and of the software versions, for the results of benchmarks."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from slipstream.processor import processor_name

PACKAGES = ("slipstream", "torch", "numpy", "mpi4py")


def environment() -> dict[str, Any]:
    """Return the machine and the versions of the software as a JSON-compatible dictionary."""
    return {
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "processor": processor_name(),
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "load": os.getloadavg(),
        },
        "versions": {
            "python": platform.python_version(),
            **{package: _version(package) for package in PACKAGES},
            "mpirun": _mpirun(),
        },
    }


def environment_line() -> str:
    """Return the machine and the versions of the software in one readable line."""
    versions = environment()["versions"]
    named = [f"{name} {versions[name]}" for name in ("slipstream", "torch") if versions[name]]
    return f"{os.cpu_count()} cores of {processor_name()}; {', '.join(named)}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _mpirun() -> str | None:
    try:
        done = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.partition("\n")[0].strip() or None
