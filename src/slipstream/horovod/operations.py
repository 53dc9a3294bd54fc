"""Operations of tensors that are ready on all ranks, each started on the site of its arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from slipstream.comm.arrays import Array
from slipstream.comm.collectives import Options
from slipstream.horovod.arrays import Arrays
from slipstream.horovod.fusion import FusedTensors, ReadyTensor
from slipstream.horovod.request import Request
from slipstream.horovod.sites import Site


class Operations:
    """Component that starts the engine's operations for arrays of one site.

    Only one thread may use an `Operations`.

    Args:
        site: Place of the arrays: the host's memory, or a GPU.
        arrays: Adapter of the framework.
    """

    def __init__(self, site: Site, arrays: Arrays) -> None:
        self.site = site
        self._arrays, self._group = arrays, site.group

    def run(
        self, fused: FusedTensors, rows: dict[str, list[int]], received: dict[str, list[int]]
    ) -> None:
        """Start the operation that some tensors share.

        Args:
            fused: Tensors that share the operation.
            rows: Numbers of rows from all ranks for each all_gather, by the name of the tensor.
            received: Numbers of rows from all ranks for each all-to-all, by the name of the tensor.
        """
        with self.site.starting([member.request for member in fused.members]):
            self._start(fused, rows, received)

    def _start(
        self, fused: FusedTensors, rows: dict[str, list[int]], received: dict[str, list[int]]
    ) -> None:
        first = fused.members[0]
        request = first.request
        match request.kind:
            case "allreduce" if len(fused.members) > 1 and self._may_fuse(request):
                self._allreduce_fused(fused.members)
            case "allreduce":
                for member in fused.members:
                    self._allreduce(member)
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

    def _may_fuse(self, request: Request) -> bool:
        return request.residual is None or self.site.fuses_losses

    def _allreduce(self, ready: ReadyTensor) -> None:
        request = ready.request
        target = self._target(request)
        source = self._prescaled(request, request.array)
        residual = request.residual and self.site.losses(request.residual)
        work = self._reduce(request, source, target, residual, request.priority)
        self._begin(ready, work, lambda: self._postscaled(request, target))

    def _allreduce_fused(self, members: Sequence[ReadyTensor]) -> None:
        requests = [member.request for member in members]
        first = requests[0]
        flat = self._prescaled(first, self._arrays.flat([request.array for request in requests]))
        residual = None
        if first.residual is not None:
            residual = self._arrays.flat(self._losses(requests))
        priority = max(request.priority for request in requests)
        work = self._reduce(first, flat, flat, residual, priority)
        begin = 0
        for part in [members] if self.site.finishes_together else [[each] for each in members]:
            end = begin + sum(member.num_elements for member in part)
            cut_out = partial(
                self._cut_out, [member.request for member in part], flat, residual, (begin, end)
            )
            self.site.begin(part, work, cut_out)
            begin = end

    def _cut_out(
        self,
        requests: Sequence[Request],
        flat: Array,
        residual: Array | None,
        interval: tuple[int, int],
    ) -> Sequence[Array]:
        """Return the results of requests, which follow one another in the fused result."""
        targets = [self._target(request) for request in requests]
        results = self._postscaled(requests[0], self._arrays.rows(flat, *interval))
        self._arrays.unflatten(results, targets)
        if residual is not None:
            losses = self._arrays.rows(residual, *interval)
            self._arrays.unflatten(losses, self._losses(requests))
        return targets

    def _losses(self, requests: Sequence[Request]) -> list[Array]:
        """Return the rounding errors of each request."""
        residuals = [request.residual for request in requests]
        return [self.site.losses(residual) for residual in residuals if residual is not None]

    def _reduce(
        self, request: Request, source: Array, target: Array, residual: Array | None, priority: int
    ) -> Any:
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
        self._begin(ready, None, lambda: target)

    def _all_gather(self, ready: ReadyTensor, rows: list[int]) -> None:
        request = ready.request
        target, width = self._rows_for(request, rows)
        counts = [num_rows * width for num_rows in rows]
        work = self._group.all_gather_v(request.array, counts, out=target, **_options(request))
        self._begin(ready, work, lambda: target)

    def _broadcast(self, ready: ReadyTensor) -> None:
        request = ready.request
        target = self._target(request)
        if target is not request.array:
            self._arrays.copy(target, request.array)
        work = self._group.broadcast(target, request.root, **_options(request))
        self._begin(ready, work, lambda: target)

    def _all_to_all(self, ready: ReadyTensor, received: list[int]) -> None:
        request = ready.request
        target, width = self._rows_for(request, received)
        sent = [num_rows * width for num_rows in request.splits]
        counts = [num_rows * width for num_rows in received]
        work = self._group.all_to_all_v(
            request.array, sent, counts, out=target, **_options(request)
        )
        self._begin(ready, work, lambda: (target, received))

    def _reduce_scatter(self, ready: ReadyTensor) -> None:
        """Reduce and scatter rows; the first ranks get one row more if rows are left over."""
        request, group = ready.request, self._group
        shape = self._arrays.shape(request.array)
        num_rows, row_shape = shape[0], shape[1:]
        size, own_rank = self.site.size, self.site.rank
        base, extra = divmod(num_rows, size)
        parts = [base + (rank < extra) for rank in range(size)]
        source = self._prescaled(request, request.array)
        if extra:
            source = self._padded(source, parts)
        padded = self._arrays.empty(request.array, (parts[0], *row_shape))
        work = group.reduce_scatter(source, self._op(request), out=padded, **_options(request))

        def finish() -> Array:
            target = padded
            if parts[own_rank] < parts[0]:
                target = self._arrays.empty(padded, (parts[own_rank], *row_shape))
                self._arrays.copy(target, self._arrays.rows(padded, 0, parts[own_rank]))
            return self._postscaled(request, target)

        self._begin(ready, work, finish)

    def _begin(self, ready: ReadyTensor, work: Any, finish: Callable[[], Any]) -> None:
        """Pass the engine's operation, and the function that makes its result, to the site."""
        self.site.begin([ready], work, lambda: [finish()])

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
        padded = self.site.zeros(arrays.dtype(source), (longest * len(parts), *row_shape))
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
            factor /= self.site.size
        if factor != 1.0:
            self._arrays.copy(target, self._arrays.scaled(target, factor))
        return target


def _options(request: Request) -> Options:
    return {"async_op": True, "name": request.name, "priority": request.priority}
