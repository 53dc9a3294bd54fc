"""Execution: starts the engine's operations for tensors that are ready on all ranks.

Every rank starts the same operations in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slipstream import comm
from slipstream.comm.arrays import Array, view
from slipstream.comm.collectives import Options
from slipstream.errors import SlipstreamError, UnsupportedError
from slipstream.horovod.arrays import Arrays
from slipstream.horovod.fusion import FusedTensors, ReadyTensor, fuse
from slipstream.horovod.request import Request
from slipstream.settings import HorovodSettings

# Kinds of operations that fail once a rank has joined, because it cannot take part with zeros.
_REFUSED_AFTER_JOIN = ("all_gather", "broadcast", "all_to_all", "reduce_scatter")


class Execution:
    """Component that starts the engine's operations for the tensors of a process set.

    Only one thread may use an `Execution`.

    Args:
        group: Ranks of the process set.
        settings: Settings of this process.
        arrays: Adapter of the framework.
    """

    def __init__(self, group: comm.Group, settings: HorovodSettings, arrays: Arrays) -> None:
        self._group, self._arrays = group, arrays
        self._fusion_bytes = settings.fusion_bytes
        self._separates_groups = settings.separates_groups

    def start(self, ready: Sequence[ReadyTensor], *, some_joined: bool) -> None:
        """Start the operations for the tensors of one negotiation round.

        The call blocks while ranks exchange sizes.

        Args:
            ready: Tensors that are ready, in the same order on all ranks.
            some_joined: Whether a rank has called join(). Such a rank takes part with zeros, so
                only allreduces and barriers can run.
        """
        if some_joined:
            ready = [member for member in ready if not self._refuse(member)]
        try:
            rows = self._exchange_rows(ready)
            received = self._exchange_splits(ready)
        except SlipstreamError as error:
            _fail(ready, error)
            return
        for fused in fuse(ready, self._fusion_bytes, separates_groups=self._separates_groups):
            try:
                self._start(fused, rows, received)
            except SlipstreamError as error:
                _fail(fused.members, error)

    def _refuse(self, ready: ReadyTensor) -> bool:
        """Let a tensor fail whose operation needs data from a rank that has called join().

        Returns:
            Whether the operation needs such data.
        """
        is_refused = ready.request.kind in _REFUSED_AFTER_JOIN
        if is_refused and ready.handle is not None:
            ready.handle.fail(
                UnsupportedError(
                    f"{ready.request.title} is not supported with Join at this time: tensor"
                    f" {ready.request.name!r}, and some ranks have called join(). Specify"
                    " sparse_as_dense=True if using DistributedOptimizer"
                )
            )
        return is_refused

    def _exchange_rows(self, ready: Sequence[ReadyTensor]) -> dict[str, list[int]]:
        """Return the numbers of rows from all ranks for each all_gather; keys are tensor names."""
        requests = [member.request for member in ready if member.request.kind == "all_gather"]
        if not requests:
            return {}
        own_rows = [self._arrays.shape(request.array)[0] for request in requests]
        all_rows: NDArray[np.int64] = self._group.all_gather(np.array(own_rows, dtype=np.int64))
        return {request.name: all_rows[:, i].tolist() for i, request in enumerate(requests)}

    def _exchange_splits(self, ready: Sequence[ReadyTensor]) -> dict[str, list[int]]:
        """Return the numbers of rows from all ranks for each all-to-all; keys are tensor names."""
        requests = [member.request for member in ready if member.request.kind == "all_to_all"]
        if not requests:
            return {}
        sent = np.stack([np.array(request.splits, dtype=np.int64) for request in requests], axis=1)
        received: NDArray[np.int64] = self._group.all_to_all(np.ascontiguousarray(sent))
        return {request.name: received[:, i].tolist() for i, request in enumerate(requests)}

    def _start(
        self, fused: FusedTensors, rows: dict[str, list[int]], received: dict[str, list[int]]
    ) -> None:
        first = fused.members[0]
        request = first.request
        match request.kind:
            case "allreduce" if len(fused.members) > 1:
                self._allreduce_fused(fused.members)
            case "allreduce":
                self._allreduce(first)
            case "adasum":
                self._adasum(first)
            case "all_gather":
                self._all_gather(first, rows[request.name])
            case "broadcast":
                self._broadcast(first)
            case "all_to_all":
                self._all_to_all(first, received[request.name])
            case "reduce_scatter":
                self._reduce_scatter(first)
            case _:
                pass  # a barrier is complete once all operations before it have started

    def _allreduce(self, ready: ReadyTensor) -> None:
        request = ready.request
        target = self._target(request)
        source = self._prescaled(request, request.array)
        work = self._reduce(request, source, target, request.residual, request.priority)
        _begin(ready, work, lambda: self._postscaled(request, target))

    def _allreduce_fused(self, members: Sequence[ReadyTensor]) -> None:
        requests = [member.request for member in members]
        first = requests[0]
        flat = self._prescaled(first, self._arrays.flat([request.array for request in requests]))
        residual = None
        if first.residual is not None:
            residual = self._arrays.flat([request.residual for request in requests])
        priority = max(request.priority for request in requests)
        work = self._reduce(first, flat, flat, residual, priority)
        begin = 0
        for member in members:
            end = begin + view(member.request.array).elements
            cut_out = partial(self._cut_out, member.request, flat, residual, (begin, end))
            _begin(member, work, cut_out)
            begin = end

    def _cut_out(
        self, request: Request, flat: Array, residual: Array | None, interval: tuple[int, int]
    ) -> Array:
        """Return the result of one request, which is an interval of the fused result."""
        target = self._target(request)
        self._arrays.unflatten(self._arrays.rows(flat, *interval), [target])
        if residual is not None:
            self._arrays.unflatten(self._arrays.rows(residual, *interval), [request.residual])
        return self._postscaled(request, target)

    def _reduce(
        self, request: Request, source: Array, target: Array, residual: Array | None, priority: int
    ) -> comm.Handle:
        return self._group.allreduce(
            source,
            self._op(request),
            out=target,
            codec=request.codec,
            residual=residual,
            async_op=True,
            name=request.name,
            priority=priority,
        )

    def _adasum(self, ready: ReadyTensor) -> None:
        """Combine tensors of pairs of ranks, then of pairs of pairs (Maleki et al., MLSys 2021).

        The algorithm takes log2 n steps, in which each rank sends S log2 n bytes. The number of
        ranks n is a power of 2, and S is the size of the tensor in bytes.
        """
        request, group = ready.request, self._group
        own_sum = self._prescaled(request, request.array)
        distance = 1
        while distance < group.size:
            partner = group.rank ^ distance
            other_sum = self._arrays.empty(own_sum, self._arrays.shape(own_sum))
            sending = group.send(own_sum, partner, async_op=True, name=request.name)
            group.recv(other_sum, partner, name=request.name)
            sending.wait()
            is_lower = group.rank < partner
            low, high = (own_sum, other_sum) if is_lower else (other_sum, own_sum)
            own_sum = self._arrays.combined(low, high)
            distance *= 2
        target = self._target(request)
        self._arrays.copy(target, own_sum)
        _begin(ready, None, lambda: target)

    def _all_gather(self, ready: ReadyTensor, rows: list[int]) -> None:
        request = ready.request
        target, width = self._rows_for(request, rows)
        counts = [num_rows * width for num_rows in rows]
        work = self._group.all_gather_v(request.array, counts, out=target, **_options(request))
        _begin(ready, work, lambda: target)

    def _broadcast(self, ready: ReadyTensor) -> None:
        request = ready.request
        target = self._target(request)
        if target is not request.array:
            self._arrays.copy(target, request.array)
        work = self._group.broadcast(target, request.root, **_options(request))
        _begin(ready, work, lambda: target)

    def _all_to_all(self, ready: ReadyTensor, received: list[int]) -> None:
        request = ready.request
        target, width = self._rows_for(request, received)
        sent = [num_rows * width for num_rows in request.splits]
        counts = [num_rows * width for num_rows in received]
        work = self._group.all_to_all_v(
            request.array, sent, counts, out=target, **_options(request)
        )
        _begin(ready, work, lambda: (target, received))

    def _reduce_scatter(self, ready: ReadyTensor) -> None:
        """Reduce and scatter rows; the first ranks get one row more if rows are left over."""
        request, group = ready.request, self._group
        num_rows, *row_shape = self._arrays.shape(request.array)
        base, extra = divmod(num_rows, group.size)
        parts = [base + (rank < extra) for rank in range(group.size)]
        source = self._prescaled(request, request.array)
        if extra:
            source = self._padded(source, parts)
        padded = self._arrays.empty(request.array, (parts[0], *row_shape))
        work = group.reduce_scatter(source, self._op(request), out=padded, **_options(request))

        def finish() -> Array:
            target = padded
            if parts[group.rank] < parts[0]:
                target = self._arrays.empty(padded, (parts[group.rank], *row_shape))
                self._arrays.copy(target, self._arrays.rows(padded, 0, parts[group.rank]))
            return self._postscaled(request, target)

        _begin(ready, work, finish)

    def _target(self, request: Request) -> Array:
        """Return the array for a result that has the shape of the input."""
        if request.output is not None:
            return request.output
        return self._arrays.empty(request.array, self._arrays.shape(request.array))

    def _rows_for(self, request: Request, counts: Sequence[int]) -> tuple[Array, int]:
        """Return an array for the rows of all ranks, and the number of elements in a row."""
        _, *row_shape = self._arrays.shape(request.array)
        return self._arrays.empty(request.array, (sum(counts), *row_shape)), math.prod(row_shape)

    def _padded(self, source: Array, parts: Sequence[int]) -> Array:
        """Return a copy of rows in which zeros pad every part to the length of the longest part."""
        arrays = self._arrays
        _, *row_shape = arrays.shape(source)
        longest = max(parts)
        padded = arrays.zeros(arrays.dtype(source), (longest * len(parts), *row_shape))
        begin = 0
        for rank, part in enumerate(parts):
            target = arrays.rows(padded, rank * longest, rank * longest + part)
            arrays.copy(target, arrays.rows(source, begin, begin + part))
            begin += part
        return padded

    def _op(self, request: Request) -> str:
        """Return the reduction that the engine computes for a request."""
        return "sum" if self._averages_late(request) else request.op

    def _averages_late(self, request: Request) -> bool:
        """Return whether the engine only sums, and the division by the number of ranks comes later.

        The engine drops the fraction of an average of integers. So if the average is multiplied by
        a factor afterwards, the product would lack the multiplied fraction.
        """
        if request.op != "average" or request.postscale == 1.0:
            return False
        return self._arrays.dtype(request.array).startswith(("int", "uint", "bool"))

    def _prescaled(self, request: Request, array: Array) -> Array:
        return array if request.prescale == 1.0 else self._arrays.scaled(array, request.prescale)

    def _postscaled(self, request: Request, target: Array) -> Array:
        """Multiply a result in place by the factor after the reduction, and return the result."""
        factor = request.postscale
        if self._averages_late(request):
            factor /= self._group.size
        if factor != 1.0:
            self._arrays.copy(target, self._arrays.scaled(target, factor))
        return target


def _options(request: Request) -> Options:
    return {"async_op": True, "name": request.name, "priority": request.priority}


def _fail(members: Sequence[ReadyTensor], error: SlipstreamError) -> None:
    for member in members:
        if member.handle is not None:
            member.handle.fail(error)


def _begin(ready: ReadyTensor, work: comm.Handle | None, finish: Callable[[], Any]) -> None:
    """Give the tensor's handle the engine's operation, unless this rank has called join()."""
    if ready.handle is not None:
        ready.handle.begin(work, finish)
