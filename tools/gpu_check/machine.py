"""Facts about the machine: GPU, driver, PCIe link and processor.

The check runs on machines where slipstream is not installed, so it reads /proc/cpuinfo itself
instead of calling `slipstream.processor`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from .bench import Bench, Row, rounded
from .device import ATTRIBUTES

# The time of a call is averaged over this number.
CALLS = 10_000
LINK = "pcie.link.gen.gpucurrent,pcie.link.gen.max,pcie.link.width.current,driver_version"


def link() -> Row:
    """Return what nvidia-smi reports about the PCIe link; {} if it fails or is missing."""
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", f"--query-gpu={LINK}", "--format=csv,noheader"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    values = ended.stdout.strip().splitlines()[:1]
    if ended.returncode or not values:
        return {}
    return dict(zip(LINK.split(","), values[0].split(", "), strict=False))


def processor() -> str:
    """Return the name of the CPU."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    match = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return match.group(1) if match else platform.machine()


def facts(bench: Bench, _: list[str]) -> Iterator[Row]:
    """Yield the facts about the machine."""
    device = bench.device
    version = ctypes.c_int()
    start = time.perf_counter()
    for _round in range(CALLS):
        device.call("cuDriverGetVersion", ctypes.byref(version))
    per_call = (time.perf_counter() - start) / CALLS
    yield {
        "gpu": device.name(),
        "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
        **link(),
        **{name: device.attribute(number) for name, number in ATTRIBUTES.items()},
        "stream_priorities": list(device.priorities()),
        "kernel": platform.release(),
        "processor": processor(),
        "processors": os.cpu_count(),
        "gibibytes_of_memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30,
        "microseconds_of_an_empty_driver_call": rounded(per_call * 1e6),
        "python": platform.python_version(),
    }
