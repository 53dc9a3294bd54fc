"""The GPU, the loops of the CPU and the kernels, which all measurements use."""

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
    """The GPU, the loops of the CPU and the kernels, for all measurements of a process.

    Args:
        device: GPU.
        loops: CPU's loops.
        kernels: Loaded kernels.
        image: File of the kernels' machine code.
    """

    device: Device
    loops: Loops
    kernels: Kernels
    image: Path


def open_bench(folder: Path) -> Bench:
    """Open the first GPU, and build the loops and kernels if they are missing.

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
    """Return median, 99th percentile and maximum of samples, by names that end in the unit."""
    ordered = sorted(samples)
    if not ordered:
        return {}
    places = {"median": len(ordered) // 2, "p99": len(ordered) * 99 // 100, "max": -1}
    return {f"{name}_{unit}": rounded(ordered[place]) for name, place in places.items()}


def microseconds(nanoseconds: Sequence[int]) -> Row:
    """Return the spread of times in microseconds."""
    return spread([time / 1000 for time in nanoseconds], "microseconds")
