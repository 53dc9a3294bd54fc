"""The way in which the ranks of a group reduce tensors of their GPUs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import torch
from torch.distributed import ReduceOp
from torch.distributed.distributed_c10d import Store

from slipstream import _core
from slipstream.torch import collectives
from slipstream.torch.bootstrap import Membership
from slipstream.torch.collectives import Encoding, RunOptions, Submission
from slipstream.torch.cuda import encoded
from slipstream.torch.cuda.groups import CudaGroups
from slipstream.torch.cuda.hierarchy import EngineGroups, Hierarchy, find_hierarchy
from slipstream.torch.cuda.stages import ExchangeRanks

_EXACT = "none"


class GpuReductions:
    """The reductions of a group's tensors on one GPU.

    A tensor is reduced in stages if the GPUs form a hierarchy, and otherwise by one operation of
    the engine. Encoded averages are encoded on the GPU if the GPUs form a hierarchy over several
    hosts, or if every rank is on a host of its own. Otherwise the engine encodes the
    data between hosts on the CPU.

    Args:
        groups: Groups of the engine, one for each GPU of this process. All ranks are members.
        rank: Rank of this process.
        size: Number of ranks.
        is_alone: Whether every rank is on a host of its own.
        hierarchy: Hierarchy of the GPUs; None if there is none.
    """

    def __init__(
        self,
        groups: CudaGroups,
        rank: int,
        size: int,
        is_alone: bool,
        hierarchy: Hierarchy | None,
    ) -> None:
        self._groups, self._rank, self._size = groups, rank, size
        self._hierarchy = hierarchy
        self._encodes = hierarchy.encodes if hierarchy is not None else is_alone and size > 1

    @classmethod
    def of(
        cls,
        membership: EngineGroups,
        groups: CudaGroups,
        make_store: Callable[[], Store],
        device: torch.device,
        timeout: timedelta,
    ) -> GpuReductions:
        """Return the reductions for a GPU; all ranks must call `of`, which may wait for them."""
        hierarchy = find_hierarchy(membership, make_store, device, timeout)
        return cls.without_local_library(membership.group, groups, hierarchy)

    @classmethod
    def without_local_library(
        cls, group: _core.Group, groups: CudaGroups, hierarchy: Hierarchy | None = None
    ) -> GpuReductions:
        """Return the reductions for a GPU in which the engine does everything; does not block."""
        is_alone = len(group.counterparts()) == group.size()
        return cls(groups, group.rank(), group.size(), is_alone, hierarchy)

    @property
    def encodes(self) -> bool:
        """Whether the GPU encodes; otherwise the engine does, on the CPU."""
        return self._encodes

    def losses_on(self, device: torch.device) -> torch.device:
        """Return the device that keeps the rounding errors of the codec."""
        return device if self._encodes else torch.device("cpu")

    def allreduce(
        self, tensor: torch.Tensor, op: ReduceOp, options: RunOptions, priority: int = 0
    ) -> Submission:
        """Replace a tensor by its reduction over all ranks; does not block."""
        if self._hierarchy is not None and self._hierarchy.takes(tensor, op):
            return self._hierarchy.allreduce(tensor, op, options, priority)
        group = self._groups.on_current_stream(tensor.device)
        return collectives.allreduce(group, tensor, op, options, priority)  # pyright: ignore

    def allreduce_encoded(
        self, tensor: torch.Tensor, encoding: Encoding, options: RunOptions
    ) -> Submission:
        """Replace a contiguous tensor by its average or sum over all ranks; does not block."""
        collectives.check_encodable(tensor, encoding, self.losses_on(tensor.device))
        group = self._groups.on_current_stream(tensor.device)
        is_large = tensor.numel() * tensor.element_size() >= encoded.SMALLEST_BYTES
        is_encoded = encoding.codec != _EXACT and tensor.dtype == torch.float32 and is_large
        if is_encoded and self._hierarchy is None and not self._encodes:
            return collectives.allreduce_encoded(group, tensor, encoding, options)  # pyright: ignore
        if is_encoded and self._encodes and self._hierarchy is not None:
            return self._hierarchy.allreduce_encoded(tensor, encoding, options)
        if is_encoded and self._encodes:
            ranks = ExchangeRanks(self._groups, self._size, self._rank, options, encoding.priority)
            divisor = self._size if encoding.averages else 1
            return encoded.allreduce(ranks, tensor, encoding.codec, encoding.residual, divisor)
        return self.allreduce(tensor, encoding.op, options, encoding.priority)

    def close(self, aborts: bool = False) -> None:
        """Leave the groups that the hierarchy has made; see `Hierarchy.close`."""
        if self._hierarchy is not None:
            self._hierarchy.close(aborts)


class ReductionsByDevice:
    """The reductions of a group for each GPU of this process, made at their first use.

    Args:
        membership: Membership of this process in the group.
        store: Store of the group.
        timeout: Time limit of collectives within a host.
    """

    def __init__(self, membership: Membership, store: Store, timeout: timedelta) -> None:
        self._membership, self._store, self._timeout = membership, store, timeout
        self._lock = threading.Lock()  # guards `_by_device`; held while ranks wait for each other
        self._by_device: dict[torch.device, GpuReductions] = {}

    def on(self, device: torch.device, groups: CudaGroups) -> GpuReductions:
        """Return the reductions for a GPU; the first call may block until all ranks have made it.

        Args:
            device: GPU of the tensors.
            groups: Groups of the engine, one for each GPU of this process. All ranks are members.
        """
        with self._lock:
            if device not in self._by_device:
                self._by_device[device] = GpuReductions.of(
                    self._membership, groups, lambda: self._store, device, self._timeout
                )
            return self._by_device[device]

    def close(self, aborts: bool = False) -> None:
        """Leave the groups that hierarchies have made; see `Hierarchy.close`."""
        for reductions in list(self._by_device.values()):  # another thread may wait in `on`
            reductions.close(aborts)
