"""The objects that all measurements use: the GPU, its kernels, and C++ loops on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .build import build_kernels, build_loops
from .device import ATTRIBUTES, Device
from .driver import Driver
from .kernels import Kernels
from .loops import Loops

Row = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """The objects that all measurements of a process use.

    Args:
        device: GPU.
        loops: C++ functions that run on the CPU (see host_loops.cc).
        kernels: Loaded kernels.
        image: Path of the cubin file from which the kernels were loaded.
    """

    device: Device
    loops: Loops
    kernels: Kernels
    image: Path


def open_bench(folder: Path) -> Bench:
    """Open the first GPU; build the CPU's loops and the GPU's kernels if they are not built yet.

    Args:
        folder: Folder for the built files.

    Raises:
        NoDriverError: There is no driver or no GPU.
        BuildError: There is no compiler.
    """
    device = Device(Driver())
    major = device.attribute(ATTRIBUTES["compute_capability_major"])
    minor = device.attribute(ATTRIBUTES["compute_capability_minor"])
    image = build_kernels(folder, 10 * major + minor)
    return Bench(device, Loops(build_loops(folder)), Kernels(device, image), image)


def rounded(value: float) -> float:
    """Return a number rounded to four significant digits."""
    return float(f"{value:.4g}")


def spread(samples: Sequence[float], unit: str) -> Row:
    """Return the median, 99th percentile and maximum of samples.

    The keys end in the unit, such as "median_microseconds". Without samples, the result is empty.
    """
    ordered = sorted(samples)
    if not ordered:
        return {}
    places = {"median": len(ordered) // 2, "p99": len(ordered) * 99 // 100, "max": -1}
    return {f"{name}_{unit}": rounded(ordered[place]) for name, place in places.items()}


def microseconds(nanoseconds: Sequence[int]) -> Row:
    """Return the median, 99th percentile and maximum of times, in microseconds."""
    return spread([time / 1000 for time in nanoseconds], "microseconds")
