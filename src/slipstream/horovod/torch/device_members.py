"""Groups of the engine for reductions on a device, and a store for the ranks of a host."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from datetime import timedelta

import torch
from torch.distributed import FileStore  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.distributed_c10d import Store

from slipstream import _core, comm
from slipstream.settings import Settings
from slipstream.torch.cuda.groups import CudaGroups
from slipstream.torch.cuda.reductions import GpuReductions

_LONGEST_PATH = 4096  # bytes; Linux's own limit
_LIMIT = timedelta(
    minutes=30
)  # of collectives within a host, as that of torch.distributed for NCCL


def make_reductions(group: _core.Group, groups: CudaGroups, device: torch.device) -> GpuReductions:
    """Return the reductions of a process set on a device; all ranks must call this function.

    Only the set of all ranks uses NCCL within hosts. Sets run at the same time, in an order that
    differs between ranks, and NCCL needs the same order of its groups on all ranks.

    Args:
        group: Ranks of the process set.
        groups: Groups of the engine for these ranks on devices.
        device: Device of this process.
    """
    if group.size() < comm.size():
        return GpuReductions.without_local_library(group, groups)
    members = AllRanks(group)
    return GpuReductions.of(members, groups, members.make_store, device, _LIMIT)


class AllRanks:
    """Groups of the engine that have all ranks or some of them.

    Args:
        group: Group of all ranks.
    """

    def __init__(self, group: _core.Group) -> None:
        self.group, self.settings = group, Settings.from_environment()

    def sibling(self, purpose: str) -> _core.Group:
        """Create another group of the engine with all ranks, and return it."""
        return self.subgroup(purpose, range(self.group.size()))

    def subgroup(self, purpose: str, ranks: Sequence[int]) -> _core.Group:
        """Create a group of some of the ranks; all of these must."""
        name = f"{self.group.name()}/{purpose}/{'-'.join(map(str, ranks))}"
        return comm.group(ranks, name)._group  # pyright: ignore[reportPrivateUsage]

    def make_store(self) -> Store:
        """Return a store that the ranks of this host share; blocks until all ranks have called.

        The store is a file that only this user can read. The last rank to leave deletes it.
        """
        local = self.group.ranks_of_host()
        own = torch.zeros(_LONGEST_PATH, dtype=torch.uint8)
        if self.group.rank() == local[0]:
            descriptor, path = tempfile.mkstemp(prefix="slipstream-store-")
            os.close(descriptor)
            encoded = os.fsencode(path)
            own[: len(encoded)] = torch.frombuffer(bytearray(encoded), dtype=torch.uint8)
        paths = torch.empty(self.group.size(), _LONGEST_PATH, dtype=torch.uint8)
        group = self.sibling("store")
        group.all_gather(own.data_ptr(), paths.data_ptr(), _LONGEST_PATH, _core.DType.UINT8).wait()
        path_of_host = os.fsdecode(paths[local[0]].numpy().tobytes().rstrip(b"\0"))
        return FileStore(path_of_host, len(local))
