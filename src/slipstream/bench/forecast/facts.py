"""Properties that the device reports: name, memory, number of processors and cache.

Each function takes `is_gpu`, which says whether the device is the GPU or this machine's processors.
"""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import os
from pathlib import Path

import torch

from slipstream.bench.environment import environment_line
from slipstream.units import GIB, MIB


def title(*, is_gpu: bool) -> str:
    """Return the names and versions of the device and of the software."""
    if is_gpu:
        return f"{torch.cuda.get_device_name()}; torch {torch.__version__}"
    return environment_line()


def memory_gib(*, is_gpu: bool) -> float:
    """Return the memory of the device in GiB."""
    if is_gpu:
        return torch.cuda.get_device_properties(0).total_memory / GIB
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB


def context_mib() -> float:
    """Return the GPU memory used outside PyTorch's allocator, such as the CUDA context, in MiB."""
    free, total = torch.cuda.mem_get_info()
    return (total - free - torch.cuda.memory_reserved()) / MIB


def processors(*, is_gpu: bool) -> int:
    """Return the number of multiprocessors of the GPU, or the number of threads without a GPU."""
    if is_gpu:
        return int(torch.cuda.get_device_properties(0).multi_processor_count)
    return torch.get_num_threads()


def cache_mib(*, is_gpu: bool) -> float:
    """Return the size of the last-level cache in MiB."""
    if is_gpu:
        return torch.cuda.get_device_properties(0).L2_cache_size / MIB
    paths = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    sizes = [path.read_text().strip() for path in paths]
    return max((float(size[:-1]) / 1024 for size in sizes if size.endswith("K")), default=1.0)
