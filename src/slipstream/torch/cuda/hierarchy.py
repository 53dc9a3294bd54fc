"""Reductions in three stages: among the GPUs of each host, between hosts, and again in each host.

First, a reduce-scatter among the GPUs of a host gives each rank a share of the host's sums. Second,
each rank reduces its share with the ranks that have the same share on the other hosts. Third, an
all-gather in the host puts the shares together. So each value crosses the network once per host,
and the GPUs' own links carry the rest.

The first and the third stage have a communicator each. If they had the same communicator, the
reduce-scatter of a bucket would wait for the previous bucket's all-gather, which waits for the
network.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol, cast

import torch
from torch.distributed import ReduceOp
from torch.distributed.distributed_c10d import PrefixStore, Store

from slipstream import _core
from slipstream.settings import Settings
from slipstream.torch.collectives import Encoding, RunOptions, Submission, reduce_in_place
from slipstream.torch.cuda import encoded
from slipstream.torch.cuda.groups import CudaGroups
from slipstream.torch.cuda.kinds import kind_of
from slipstream.torch.cuda.local_groups import LocalGroup
from slipstream.torch.cuda.stages import ExchangeRanks, later_stages, wait_for_all
from slipstream.torch.tensors import copy_out, dense

_log = logging.getLogger(__name__)

# Smaller tensors are reduced in one stage. Chosen by hand, not measured.
SMALLEST_BYTES = 64 << 10
# What NCCL reduces, too. An average is a sum that is divided between the stages.
_OPS = frozenset(
    op.value for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT)
)
_IDENTITY_BYTES = 16
_DTYPES = frozenset(
    (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64)
)


class HostGroup(NamedTuple):
    """The ranks of this host.

    Args:
        scatter: Communicator of the reduce-scatters.
        gather: Communicator of the all-gathers.
        rank: Position of this rank in the host.
        size: Number of ranks of the host, the same on all hosts.
    """

    scatter: LocalGroup
    gather: LocalGroup
    rank: int
    size: int


class EngineGroups(Protocol):
    """The groups of the engine that a hierarchy needs, such as `bootstrap.Membership`."""

    @property
    def settings(self) -> Settings:
        """Settings of the engine."""
        ...

    @property
    def group(self) -> _core.Group:
        """Group of all ranks."""
        ...

    def sibling(self, purpose: str) -> _core.Group:
        """Create another group with the same ranks, and return it."""
        ...

    def subgroup(self, purpose: str, ranks: Sequence[int]) -> _core.Group:
        """Create a group of some of the ranks, given by their ranks here; all of these must."""
        ...


class Hierarchy:
    """Reductions over several hosts with several GPUs each.

    Args:
        host: Ranks of this host.
        across: Group of the engine for the ranks with the same position on all hosts.
    """

    def __init__(self, host: HostGroup, across: _core.Group) -> None:
        self._host, self._num_hosts = host, across.size()
        self._rank, self._groups = across.rank(), CudaGroups(across)

    @property
    def encodes(self) -> bool:
        """Whether there are several hosts; only data between hosts are encoded."""
        return self._num_hosts > 1

    def takes(self, tensor: torch.Tensor, op: ReduceOp) -> bool:
        """Return whether a tensor is reduced in stages; all ranks get the same answer."""
        is_large = tensor.numel() * tensor.element_size() >= SMALLEST_BYTES
        is_mean_of_integers = _is_average(op) and not tensor.is_floating_point()
        is_known = tensor.dtype in _DTYPES and hash(op) in _OPS
        return is_large and is_known and not is_mean_of_integers

    def allreduce(
        self, tensor: torch.Tensor, op: ReduceOp, options: RunOptions, priority: int
    ) -> Submission:
        """Replace a tensor by its reduction over all ranks; does not block."""
        inside = ReduceOp(ReduceOp.SUM) if _is_average(op) else op

        def exchange(share: torch.Tensor, _: tuple[int, int]) -> Submission:
            group = cast("_core.Group", self._groups.on_current_stream(share.device))
            return Submission((reduce_in_place(group, share, inside, options, priority),), (), ())

        divisor = self._host.size * self._num_hosts if _is_average(op) else 1
        return self._in_stages(tensor, inside, exchange, divisor)

    def allreduce_encoded(
        self, tensor: torch.Tensor, encoding: Encoding, options: RunOptions
    ) -> Submission:
        """Replace a tensor by its average or sum, encoded between hosts; does not block."""
        ranks = ExchangeRanks(self._groups, self._num_hosts, self._rank, options, encoding.priority)
        residual = None if encoding.residual is None else encoding.residual.view(-1)

        def exchange(share: torch.Tensor, interval: tuple[int, int]) -> Submission:
            losses = None if residual is None else residual[slice(*interval)]
            divisor = self._num_hosts if encoding.averages else 1
            return encoded.allreduce(ranks, share, encoding.codec, losses, divisor)

        divisor = self._host.size if encoding.averages else 1
        return self._in_stages(tensor, ReduceOp(ReduceOp.SUM), exchange, divisor)

    def close(self) -> None:
        """Leave the group between hosts."""
        self._groups.close()

    def _in_stages(
        self,
        tensor: torch.Tensor,
        op: ReduceOp,
        exchange: Callable[[torch.Tensor, tuple[int, int]], Submission],
        divisor: int,
    ) -> Submission:
        """Reduce a tensor in three stages.

        Args:
            tensor: Tensor to reduce.
            op: Reduction in the host.
            exchange: Function that begins the reduction between hosts. It receives this rank's
                share, and the interval (begin, end) of the share in the tensor.
            divisor: Number by which the result is divided.
        """
        count, length = tensor.numel(), -(-tensor.numel() // self._host.size)
        begin = min(self._host.rank * length, count)
        interval = begin, min(begin + length, count)
        between = Submission((), (), ())
        with torch.no_grad(), later_stages(self._groups, tensor.device, "scatter") as scattering:
            whole = _padded(dense(tensor).view(-1), self._host.size * length)
            share = whole.new_empty(length)
            self._host.scatter.reduce_scatter(share, whole, op).wait()
            if self._num_hosts > 1:
                between = exchange(share[: interval[1] - begin], interval)
        with torch.no_grad(), later_stages(self._groups, tensor.device, "gather") as stream:
            stream.wait_stream(scattering)
            wait_for_all(between, stream)
            if divisor > 1:  # by a tensor, because a GPU divides by a number through its inverse
                share.div_(torch.full((), float(divisor), dtype=share.dtype, device=share.device))
            self._host.gather.all_gather(whole, share).wait()
            if whole.data_ptr() != tensor.data_ptr() or not tensor.is_contiguous():
                copy_out(((tensor, whole[:count].view(tensor.shape)),))
            landed = stream.record_event()
        buffers = [tensor, whole, share, *between.buffers]
        return Submission(between.handles, [tensor], [tensor], buffers, landed=landed)


def _is_average(op: ReduceOp) -> bool:
    return hash(op) == ReduceOp.AVG.value


def _padded(values: torch.Tensor, length: int) -> torch.Tensor:
    """Return values with zeros appended up to `length`, or `values` itself if it is that long."""
    if values.numel() == length:
        return values
    padded = values.new_zeros(length)
    padded[: values.numel()] = values
    return padded


def find_hierarchy(
    membership: EngineGroups,
    make_store: Callable[[], Store],
    device: torch.device,
    timeout: timedelta,
) -> Hierarchy | None:
    """Return the hierarchy of a group's GPUs, or None if they form no hierarchy.

    The GPUs form a hierarchy if NCCL is available, every host has the same number of ranks, at
    least two, and each rank has a GPU of its own. All ranks must call this function, and all get
    the same answer. The call blocks until all ranks have made it, unless NCCL is missing or each
    host has one rank. PyTorch must have NCCL on all ranks, or on none.

    Args:
        membership: Groups of the engine.
        make_store: Function that returns a store that the ranks of a host share; it is called on
            all ranks or on none.
        device: GPU of this rank.
        timeout: Time limit of collectives within a host.
    """
    kind, group = kind_of(device), membership.group
    local, across = group.ranks_of_host(), group.counterparts()
    if membership.settings.cuda_hierarchy == "off" or len(local) < 2 or kind.connect is None:
        return None
    if not _has_each_a_gpu(membership, kind.identity(device)):
        return None
    rank, store = local.index(group.rank()), make_store()
    scatter, gather = (
        kind.connect(
            PrefixStore(f"hierarchy/{group.name()}/{local[0]}/{stage}", store),
            rank,
            len(local),
            device,
            timeout,
        )
        for stage in ("scatter", "gather")
    )
    host = HostGroup(scatter, gather, rank, len(local))
    _log.info(
        "%d GPUs of each host are reduced by %s, and %d hosts by slipstream",
        *(len(local), kind.local_name, len(across)),
    )
    return Hierarchy(host, membership.subgroup("across", across))


def _has_each_a_gpu(membership: EngineGroups, identity: bytes) -> bool:
    """Exchange identities of GPUs; return whether all are known and no two ranks share a GPU."""
    group = membership.sibling("gpus")
    own = torch.zeros(_IDENTITY_BYTES, dtype=torch.uint8)
    if identity:
        digest = hashlib.sha256(identity).digest()[:_IDENTITY_BYTES]
        own.copy_(torch.frombuffer(bytearray(digest), dtype=torch.uint8))
    everybody = torch.empty(group.size(), _IDENTITY_BYTES, dtype=torch.uint8)
    group.all_gather(
        own.data_ptr(), everybody.data_ptr(), _IDENTITY_BYTES, _core.DType.UINT8
    ).wait()
    identities = {each.numpy().tobytes() for each in everybody}
    return len(identities) == group.size() and bytes(_IDENTITY_BYTES) not in identities
