"""Execution of tensors that are ready on all ranks, in operations that all ranks start alike."""

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
from slipstream.horovod.fusion import Fused, Ready, fuse
from slipstream.horovod.request import Arrays, Request
from slipstream.settings import HorovodSettings

# A rank that has joined cannot take part in collectives of these kinds.
_REFUSED = ("all_gather", "broadcast", "all_to_all", "reduce_scatter")


class Execution:
    """Start of the engine's operations; only one thread uses it.

    Args:
        group: Ranks of a process set.
        settings: Settings of this process.
        arrays: Array functions of the framework.
    """

    def __init__(self, group: comm.Group, settings: HorovodSettings, arrays: Arrays) -> None:
        self._group, self._arrays = group, arrays
        self._fusion_bytes = settings.fusion_bytes
        self._separates_groups = settings.separates_groups

    def start(self, ready: Sequence[Ready], *, some_joined: bool) -> None:
        """Start the operations of one round; block while ranks exchange sizes.

        Args:
            ready: The same tensors in the same order on all ranks.
            some_joined: Whether a rank has joined, so that only element-wise reductions can run.
        """
        if some_joined:
            ready = [each for each in ready if not self._refuse(each)]
        try:
            rows = self._exchange_rows(ready)
            received = self._exchange_splits(ready)
        except SlipstreamError as error:
            for each in ready:
                if each.handle is not None:
                    each.handle.fail(error)
            return
        for fused in fuse(ready, self._fusion_bytes, separates_groups=self._separates_groups):
            try:
                self._start(fused, rows, received)
            except SlipstreamError as error:
                for each in fused.members:
                    if each.handle is not None:
                        each.handle.fail(error)

    def _refuse(self, ready: Ready) -> bool:
        is_refused = ready.request.kind in _REFUSED
        if is_refused and ready.handle is not None:
            ready.handle.fail(
                UnsupportedError(
                    f"{ready.request.title} is not supported with Join at this time: tensor"
                    f" {ready.request.name!r}, and some ranks have called join(). Specify"
                    " sparse_as_dense=True if using DistributedOptimizer"
                )
            )
        return is_refused

    def _exchange_rows(self, ready: Sequence[Ready]) -> dict[str, list[int]]:
        """Return the number of rows that each rank has of every gathered tensor, by its name."""
        gathered = [each.request for each in ready if each.request.kind == "all_gather"]
        if not gathered:
            return {}
        own = [self._arrays.shape(each.array)[0] for each in gathered]
        of_all: NDArray[np.int64] = self._group.all_gather(np.array(own, dtype=np.int64))
        return {each.name: of_all[:, i].tolist() for i, each in enumerate(gathered)}

    def _exchange_splits(self, ready: Sequence[Ready]) -> dict[str, list[int]]:
        """Return the number of rows that come from each rank of an all-to-all, by tensor name."""
        exchanged = [each.request for each in ready if each.request.kind == "all_to_all"]
        if not exchanged:
            return {}
        own = np.stack([np.array(each.splits, dtype=np.int64) for each in exchanged], axis=1)
        of_all: NDArray[np.int64] = self._group.all_to_all(np.ascontiguousarray(own))
        return {each.name: of_all[:, i].tolist() for i, each in enumerate(exchanged)}

    def _start(
        self, fused: Fused, rows: dict[str, list[int]], received: dict[str, list[int]]
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

    def _allreduce(self, ready: Ready) -> None:
        request = ready.request
        target = self._target(request)
        source = self._prescaled(request, request.array)
        work = self._reduce(request, source, target, request.residual, request.priority)
        _begin(ready, work, lambda: self._postscaled(request, target))

    def _allreduce_fused(self, members: Sequence[Ready]) -> None:
        requests = [each.request for each in members]
        first = requests[0]
        flat = self._prescaled(first, self._arrays.flat([each.array for each in requests]))
        residual = None
        if first.residual is not None:
            residual = self._arrays.flat([each.residual for each in requests])
        priority = max(each.priority for each in requests)
        work = self._reduce(first, flat, flat, residual, priority)
        begin = 0
        for each in members:
            end = begin + view(each.request.array).elements
            take = partial(self._take_part, each.request, flat, residual, (begin, end))
            _begin(each, work, take)
            begin = end

    def _take_part(
        self, request: Request, flat: Array, residual: Array | None, place: tuple[int, int]
    ) -> Array:
        """Return one of the tensors that were reduced together, cut out of the fused result."""
        target = self._target(request)
        self._arrays.unflatten(self._arrays.rows(flat, *place), [target])
        if residual is not None:
            self._arrays.unflatten(self._arrays.rows(residual, *place), [request.residual])
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

    def _adasum(self, ready: Ready) -> None:
        """Combine tensors of pairs of ranks, then of pairs of pairs (Maleki et al., MLSys 2021).

        It takes log2 n steps and S log2 n bytes; n is a power of 2.
        """
        request, group = ready.request, self._group
        own = self._prescaled(request, request.array)
        distance = 1
        while distance < group.size:
            partner = group.rank ^ distance
            other = self._arrays.empty(own, self._arrays.shape(own))
            sending = group.send(own, partner, async_op=True, name=request.name)
            group.recv(other, partner, name=request.name)
            sending.wait()
            low, high = (own, other) if group.rank < partner else (other, own)
            own = self._arrays.combined(low, high)
            distance *= 2
        target = self._target(request)
        self._arrays.copy(target, own)
        _begin(ready, None, lambda: target)

    def _all_gather(self, ready: Ready, rows: list[int]) -> None:
        request = ready.request
        target, width = self._rows_for(request, rows)
        counts = [each * width for each in rows]
        work = self._group.all_gather_v(request.array, counts, out=target, **_options(request))
        _begin(ready, work, lambda: target)

    def _broadcast(self, ready: Ready) -> None:
        request = ready.request
        target = self._target(request)
        if target is not request.array:
            self._arrays.copy(target, request.array)
        work = self._group.broadcast(target, request.root, **_options(request))
        _begin(ready, work, lambda: target)

    def _all_to_all(self, ready: Ready, received: list[int]) -> None:
        request = ready.request
        target, width = self._rows_for(request, received)
        sent = [each * width for each in request.splits]
        counts = [each * width for each in received]
        work = self._group.all_to_all_v(
            request.array, sent, counts, out=target, **_options(request)
        )
        _begin(ready, work, lambda: (target, received))

    def _reduce_scatter(self, ready: Ready) -> None:
        """Reduce and scatter rows; the first ranks get one more if the division is not even."""
        request, group = ready.request, self._group
        num_rows, *rest = self._arrays.shape(request.array)
        base, extra = divmod(num_rows, group.size)
        parts = [base + (rank < extra) for rank in range(group.size)]
        source = self._prescaled(request, request.array)
        if extra:
            source = self._padded(source, parts)
        whole = self._arrays.empty(request.array, (parts[0], *rest))
        work = group.reduce_scatter(source, self._op(request), out=whole, **_options(request))

        def finish() -> Array:
            target = whole
            if parts[group.rank] < parts[0]:
                target = self._arrays.empty(whole, (parts[group.rank], *rest))
                self._arrays.copy(target, self._arrays.rows(whole, 0, parts[group.rank]))
            return self._postscaled(request, target)

        _begin(ready, work, finish)

    def _target(self, request: Request) -> Array:
        """Return the array for a result that has the shape of the input."""
        if request.output is not None:
            return request.output
        return self._arrays.empty(request.array, self._arrays.shape(request.array))

    def _rows_for(self, request: Request, counts: Sequence[int]) -> tuple[Array, int]:
        """Return an array for the rows of all ranks, and the number of elements in a row."""
        _, *rest = self._arrays.shape(request.array)
        return self._arrays.empty(request.array, (sum(counts), *rest)), math.prod(rest)

    def _padded(self, source: Array, parts: Sequence[int]) -> Array:
        """Return parts of equal size; zeros fill the end of the shorter ones."""
        arrays = self._arrays
        _, *rest = arrays.shape(source)
        most = max(parts)
        padded = arrays.zeros(view(source).dtype.name.lower(), (most * len(parts), *rest))
        begin = 0
        for rank, part in enumerate(parts):
            target = arrays.rows(padded, rank * most, rank * most + part)
            arrays.copy(target, arrays.rows(source, begin, begin + part))
            begin += part
        return padded

    def _op(self, request: Request) -> str:
        return "sum" if self._averages_late(request) else request.op

    def _averages_late(self, request: Request) -> bool:
        """Return whether the sum is divided together with the postscale, after the engine.

        The engine's average of integers drops the fraction, which the postscale would need.
        """
        is_integral = self._arrays.is_integral(request.array)
        return request.op == "average" and request.postscale != 1.0 and is_integral

    def _prescaled(self, request: Request, array: Array) -> Array:
        return array if request.prescale == 1.0 else self._arrays.scaled(array, request.prescale)

    def _postscaled(self, request: Request, target: Array) -> Array:
        """Scale a result in place, and return it."""
        factor = request.postscale
        if self._averages_late(request):
            factor /= self._group.size
        if factor != 1.0:
            self._arrays.copy(target, self._arrays.scaled(target, factor))
        return target


def _options(request: Request) -> Options:
    return {"async_op": True, "name": request.name, "priority": request.priority}


def _begin(ready: Ready, work: comm.Handle | None, finish: Callable[[], Any]) -> None:
    """Give the work to the waiting handle, which is missing if this rank has joined."""
    if ready.handle is not None:
        ready.handle.begin(work, finish)
