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
import secrets
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol, cast

import torch
from torch.distributed import ReduceOp
from torch.distributed.distributed_c10d import PrefixStore, Store

from slipstream import _core
from slipstream.errors import UnsupportedError
from slipstream.settings import Settings
from slipstream.torch.collectives import Encoding, RunOptions, Submission, reduce_in_place
from slipstream.torch.cuda import encoded
from slipstream.torch.cuda.groups import CudaGroups
from slipstream.torch.cuda.kinds import kind_of
from slipstream.torch.cuda.local_groups import LocalGroup
from slipstream.torch.cuda.stages import ExchangeRanks, later_stages, wait_for_all
from slipstream.torch.cuda.watch import FailureWatch
from slipstream.torch.tensors import copy_out, dense

_log = logging.getLogger(__name__)

# Smaller tensors are reduced in one stage. A guess, not measured: three stages take two launches of
# NCCL and some events more, but send a host's data over the network once, not once per rank. On two
# hosts with several GPUs each, allreduces of 4 KiB to 1 MiB with SLIPSTREAM_CUDA_HIERARCHY=off and
# without would find the size at which the stages are faster.
SMALLEST_BYTES = 64 << 10
# What NCCL reduces, too. An average is a sum that is divided between the stages.
_OPS = frozenset(
    op.value for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT)
)
_IDENTITY_BYTES = 16
_END_SECONDS = 5.0  # for collectives to end when the group is left; chosen by hand, not measured
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

    def close(self) -> None:
        """Leave both communicators, after all collectives have ended."""
        self.scatter.close()
        self.gather.close()

    def abort(self) -> None:
        """End all collectives, and leave both communicators."""
        self.scatter.abort()
        self.gather.abort()


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
        everybody: Group of the engine for all ranks, which is used for nothing else. If it fails,
            the collectives within the host are aborted.
    """

    def __init__(self, host: HostGroup, across: _core.Group, everybody: _core.Group) -> None:
        self._host, self._num_hosts = host, across.size()
        self._rank, self._groups = across.rank(), CudaGroups(across)
        self._landed: torch.Event | None = None  # after the last reduction
        self._watch = FailureWatch((everybody, across), host.abort)
        self._end_watch = weakref.finalize(self, self._watch.close)

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

    def close(self, aborts: bool = False) -> None:
        """Leave the groups. A second call does nothing.

        Args:
            aborts: Whether reductions in flight are aborted at once. By default they get five
                seconds to end.
        """
        if not self._end_watch.alive:
            return
        self._end_watch()
        if not self._watch.has_failed:  # a failure has aborted the collectives already
            if not aborts and self._has_ended():
                self._host.close()
            else:
                self._host.abort()
        self._groups.close()  # last, because the GPU fills its slots after a stage in the host

    def _has_ended(self) -> bool:
        """Wait until the last reduction has ended; return whether it has."""
        end = time.monotonic() + _END_SECONDS
        while self._landed is not None and not self._landed.query():
            if time.monotonic() > end:
                return False
            time.sleep(1e-3)
        return True

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
        self._watch.check()
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
        gathering = later_stages(self._groups, tensor.device, "gather", after=(scattering,))
        with torch.no_grad(), gathering as stream:
            wait_for_all(between, stream)
            if divisor > 1:  # by a tensor, because a GPU divides by a number through its inverse
                share.div_(torch.full((), float(divisor), dtype=share.dtype, device=share.device))
            self._host.gather.all_gather(whole, share).wait()
            if whole.data_ptr() != tensor.data_ptr() or not tensor.is_contiguous():
                copy_out(((tensor, whole[:count].view(tensor.shape)),))
            self._landed = landed = stream.record_event()
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
    host has one rank. PyTorch must have NCCL on all ranks, or on none. If SLIPSTREAM_CUDA_HIERARCHY
    is "off" on one rank, there is no hierarchy.

    Args:
        membership: Groups of the engine.
        make_store: Function that returns a store that the ranks of a host share; it is called on
            all ranks or on none.
        device: GPU of this rank.
        timeout: Time limit of collectives within a host.

    Raises:
        UnsupportedError: NCCL cannot connect the GPUs of the host.
    """
    kind, group = kind_of(device), membership.group
    local, across = group.ranks_of_host(), group.counterparts()
    if len(local) < 2 or kind.connect is None:
        return None
    is_off = membership.settings.cuda_hierarchy == "off"
    everybody = membership.sibling("gpus")
    name = _name_of_host(everybody, local[0], b"" if is_off else kind.identity(device))
    if name is None:
        return None
    host = _connect(make_store(), name, (local.index(group.rank()), len(local)), device, timeout)
    _log.info(
        "%d GPUs of each host are reduced by %s, and %d hosts by slipstream",
        *(len(local), kind.local_name, len(across)),
    )
    return Hierarchy(host, membership.subgroup("across", across), everybody)


def _name_of_host(group: _core.Group, first: int, identity: bytes) -> str | None:
    """Exchange identities of GPUs among all ranks; return a name for the ranks of this host.

    The first rank of a host draws the name. So it is new, although a store outlives its groups and
    a process may use several GPUs in one group.

    Args:
        group: Group of all ranks.
        first: First rank of this host.
        identity: Identity of this rank's GPU; no bytes if it is not known.

    Returns:
        The name, or None if a GPU is not known or two ranks share a GPU.
    """
    digest = hashlib.sha256(identity).digest() if identity else bytes(_IDENTITY_BYTES)
    own = bytearray(digest[:_IDENTITY_BYTES] + secrets.token_bytes(_IDENTITY_BYTES))
    source = torch.frombuffer(own, dtype=torch.uint8)
    rows = torch.empty(group.size(), len(own), dtype=torch.uint8)
    group.all_gather(source.data_ptr(), rows.data_ptr(), len(own), _core.DType.UINT8).wait()
    identities = {row[:_IDENTITY_BYTES].numpy().tobytes() for row in rows}
    if len(identities) < group.size() or bytes(_IDENTITY_BYTES) in identities:
        return None
    return f"hierarchy/{rows[first, _IDENTITY_BYTES:].numpy().tobytes().hex()}"


def _connect(
    store: Store, name: str, position: tuple[int, int], device: torch.device, timeout: timedelta
) -> HostGroup:
    """Connect the ranks of this host; blocks until all have come.

    Args:
        store: Store that these ranks share.
        name: Name of these ranks in the store.
        position: This rank's number among these ranks, and their number.
        device: GPU of this rank.
        timeout: Time limit of collectives.

    Raises:
        UnsupportedError: The library within hosts reports an error.
    """
    kind = kind_of(device)
    assert kind.connect is not None, "without a library there is no hierarchy"
    try:
        scatter, gather = (
            kind.connect(PrefixStore(f"{name}/{stage}", store), *position, device, timeout)
            for stage in ("scatter", "gather")
        )
    except RuntimeError as error:
        raise UnsupportedError(
            f"{kind.local_name} cannot connect the {position[1]} ranks of this host on {device}:"
            f" {error}; set SLIPSTREAM_CUDA_HIERARCHY=off on all ranks to do without it"
        ) from error
    return HostGroup(scatter, gather, *position)
