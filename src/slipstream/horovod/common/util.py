"""Helper functions that scripts and tests for Horovod import from this module."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

from slipstream.horovod.common.basics import ccl_built as ccl_built
from slipstream.horovod.common.basics import ddl_built as ddl_built
from slipstream.horovod.common.basics import gloo_built as gloo_built
from slipstream.horovod.common.basics import mpi_built as mpi_built
from slipstream.horovod.common.basics import nccl_built as nccl_built
from slipstream.settings.changed import changed as env

__all__ = ["env"]

_cache = functools.cache  # Horovod's own tests import this name

T = TypeVar("T")


def split_list(values: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Cut a list into `parts` pieces whose lengths differ by at most one, longer pieces first."""
    length, longer = divmod(len(values), parts)
    cuts = [length * part + min(part, longer) for part in range(parts + 1)]
    return [values[begin:end] for begin, end in itertools.pairwise(cuts)]


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether a framework is supported; only torch is."""
    return ext_base_name == "torch"


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether a framework that was imported finds a CUDA GPU; only torch is supported."""
    framework = sys.modules.get(ext_base_name)
    return ext_base_name == "torch" and framework is not None and framework.cuda.is_available()


def is_iterable(value: Any) -> bool:
    """Return whether a value can be iterated over."""
    try:
        iter(value)
    except TypeError:
        return False
    return True


def num_rank_is_power_2(num_rank: int) -> bool:
    """Return whether a number of ranks is a power of 2, which Adasum needs."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0
