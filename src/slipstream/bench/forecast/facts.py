"""Facts that the device reports about itself."""

# PyTorch's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import os
from pathlib import Path

import torch

from slipstream.bench.result import environment_line
from slipstream.units import GIB, MIB


def title(*, is_gpu: bool) -> str:
    """Return the names of the device and of the software.

    Args:
        is_gpu: a GPU; else the processors.
    """
    if is_gpu:
        return f"{torch.cuda.get_device_name()}; torch {torch.__version__}"
    return environment_line()


def memory_gib(*, is_gpu: bool) -> float:
    """Return the device's memory.

    Args:
        is_gpu: a GPU; else the processors.
    """
    if is_gpu:
        return torch.cuda.get_device_properties(0).total_memory / GIB
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB


def context_mib() -> float:
    """Return the GPU memory of this process that is not in tensors."""
    free, total = torch.cuda.mem_get_info()
    return (total - free - torch.cuda.memory_reserved()) / MIB


def processors(*, is_gpu: bool) -> int:
    """Return the processors that tiles of a product are shared among.

    Args:
        is_gpu: a GPU; else the processors.
    """
    if is_gpu:
        return int(torch.cuda.get_device_properties(0).multi_processor_count)
    return torch.get_num_threads()


def cache_mib(*, is_gpu: bool) -> float:
    """Return the last level's cache.

    Args:
        is_gpu: a GPU; else the processors.
    """
    if is_gpu:
        return torch.cuda.get_device_properties(0).L2_cache_size / MIB
    found = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    sizes = [path.read_text().strip() for path in found]
    return max((float(size[:-1]) / 1024 for size in sizes if size.endswith("K")), default=1.0)
