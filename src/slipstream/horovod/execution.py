"""What is ready on all ranks becomes operations of the engine, which all ranks start alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slipstream import comm
from slipstream.comm.arrays import Array, view
from slipstream.errors import SlipstreamError, UnsupportedError
from slipstream.horovod.fusion import Fused, Ready, fuse
from slipstream.horovod.request import Request
from slipstream.settings import HorovodSettings

_TITLES = {
    "all_gather": "Allgather",
    "broadcast": "Broadcast",
    "all_to_all": "Alltoall",
    "reduce_scatter": "Reducescatter",
}


class Execution:
    """Starts operations; used by one thread.

    Args:
        group: the ranks of a process set.
        settings: of this process.
    """

    def __init__(self, group: comm.Group, settings: HorovodSettings) -> None:
        self._group = group
        self._fusion_bytes = settings.fusion_bytes
        self._separates_groups = settings.separates_groups

    def start(self, ready: Sequence[Ready], *, some_joined: bool) -> None:
        """Starts what is ready in one round; blocks for what ranks tell each other of sizes.

        Args:
            ready: the same tensors in the same order on all ranks.
            some_joined: only reductions by element can be done.
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
        title = _TITLES.get(ready.terms.kind)
        if title is not None and ready.handle is not None:
            ready.handle.fail(
                UnsupportedError(
                    f"{title} is not supported with Join at this time: tensor"
                    f" {ready.request.name!r}, and some ranks have called join()"
                )
            )
        return title is not None

    def _exchange_rows(self, ready: Sequence[Ready]) -> dict[str, list[int]]:
        """Returns, of what is gathered, the rows that each rank has."""
        gathered = [each.request for each in ready if each.terms.kind == "all_gather"]
        if not gathered:
            return {}
        own = [each.arrays.shape(each.array)[0] for each in gathered]
        of_all: NDArray[np.int64] = self._group.all_gather(np.array(own, dtype=np.int64))
        return {each.name: of_all[:, i].tolist() for i, each in enumerate(gathered)}

    def _exchange_splits(self, ready: Sequence[Ready]) -> dict[str, list[int]]:
        """Returns, of what is exchanged, the rows that come from each rank."""
        exchanged = [each.request for each in ready if each.terms.kind == "all_to_all"]
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
        match first.terms.kind:
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
                _begin(first, (), None)  # a barrier: all ranks are here

    def _allreduce(self, ready: Ready) -> None:
        request, arrays = ready.request, ready.request.arrays
        source = _prescaled(ready, request.array)
        target = request.output
        if target is None:
            target = arrays.empty(request.array, arrays.shape(request.array))
        work = self._reduce(ready, source, target, request.residual, request.priority)
        _begin(ready, (work,), target, scale_over=self._group.size)

    def _allreduce_fused(self, members: Sequence[Ready]) -> None:
        first, arrays = members[0], members[0].request.arrays
        flat = _prescaled(first, arrays.flat([each.request.array for each in members]))
        residual = None
        if first.terms.feedback:
            residual = arrays.flat([each.request.residual for each in members])
        priority = max(each.request.priority for each in members)
        work = self._reduce(first, flat, flat, residual, priority)
        begin = 0
        for each in members:
            end = begin + view(each.request.array).elements
            _begin_part(each, work, (flat, residual), (begin, end), self._group.size)
            begin = end

    def _reduce(
        self, ready: Ready, source: Array, target: Array, residual: Array | None, priority: int
    ) -> comm.Handle:
        integral = ready.terms.op == "average" and ready.request.arrays.is_integral(source)
        return self._group.allreduce(
            source,
            "sum" if integral else ready.terms.op,
            out=target,
            codec=ready.request.codec,
            residual=residual,
            async_op=True,
            name=ready.request.name,
            priority=priority,
        )

    def _adasum(self, ready: Ready) -> None:
        """Pairs of ranks, then pairs of pairs combine what they have (Maleki et al., MLSys 2021).

        log2 n steps; n is a power of 2. S log2 n bytes.
        """
        request, arrays, group = ready.request, ready.request.arrays, self._group
        shape = arrays.shape(request.array)
        own = _prescaled(ready, request.array)
        distance = 1
        while distance < group.size:
            partner = group.rank ^ distance
            other = arrays.empty(request.array, shape)
            sending = group.send(own, partner, async_op=True, name=request.name)
            group.recv(other, partner, name=request.name)
            sending.wait()
            low, high = (own, other) if group.rank < partner else (other, own)
            own = arrays.combined(low, high)
            distance *= 2
        target = request.output if request.output is not None else arrays.empty(own, shape)
        arrays.copy(target, own)
        _begin(ready, (), target)

    def _all_gather(self, ready: Ready, rows: list[int]) -> None:
        request, arrays = ready.request, ready.request.arrays
        _, *rest = arrays.shape(request.array)
        target = arrays.empty(request.array, (sum(rows), *rest))
        width = int(np.prod(rest))
        work = self._group.all_gather_v(
            request.array,
            [each * width for each in rows],
            out=target,
            async_op=True,
            name=request.name,
            priority=request.priority,
        )
        _begin(ready, (work,), target)

    def _broadcast(self, ready: Ready) -> None:
        request, arrays = ready.request, ready.request.arrays
        target = request.output
        if target is None:
            target = arrays.empty(request.array, arrays.shape(request.array))
            arrays.copy(target, request.array)
        work = self._group.broadcast(
            target, request.root, async_op=True, name=request.name, priority=request.priority
        )
        _begin(ready, (work,), target)

    def _all_to_all(self, ready: Ready, received: list[int]) -> None:
        request, arrays = ready.request, ready.request.arrays
        _, *rest = arrays.shape(request.array)
        target = arrays.empty(request.array, (sum(received), *rest))
        width = int(np.prod(rest))
        work = self._group.all_to_all_v(
            request.array,
            [each * width for each in request.splits],
            [each * width for each in received],
            out=target,
            async_op=True,
            name=request.name,
            priority=request.priority,
        )
        _begin(ready, (work,), (target, received))

    def _reduce_scatter(self, ready: Ready) -> None:
        """The first ranks have a row more where rows cannot be divided evenly."""
        request, arrays, group = ready.request, ready.request.arrays, self._group
        num_rows, *rest = arrays.shape(request.array)
        base, extra = divmod(num_rows, group.size)
        most = base + (extra > 0)
        source = _prescaled(ready, request.array)
        if extra:
            source = _padded(request, source, [base + (r < extra) for r in range(group.size)])
        whole = arrays.empty(request.array, (most, *rest))
        integral = ready.terms.op == "average" and arrays.is_integral(source)
        work = group.reduce_scatter(
            source,
            "sum" if integral else ready.terms.op,
            out=whole,
            async_op=True,
            name=request.name,
            priority=request.priority,
        )
        target = whole
        if base + (group.rank < extra) < most:
            target = arrays.empty(whole, (base, *rest))
        _begin(ready, (work,), target, scale_over=group.size, source=whole)


def _prescaled(ready: Ready, array: Array) -> Array:
    factor = ready.terms.prescale
    return array if factor == 1.0 else ready.request.arrays.scaled(array, factor)


def _padded(request: Request, source: Array, parts: Sequence[int]) -> Array:
    """Returns equal parts, of which those that are too short end with zeros."""
    arrays = request.arrays
    _, *rest = arrays.shape(source)
    most = max(parts)
    padded = arrays.zeros(view(source).dtype.name.lower(), (most * len(parts), *rest))
    begin = 0
    for rank, part in enumerate(parts):
        target = arrays.rows(padded, rank * most, rank * most + part)
        arrays.copy(target, arrays.rows(source, begin, begin + part))
        begin += part
    return padded


def _begin(
    ready: Ready,
    works: Sequence[comm.Handle],
    result: Any,
    scale_over: int | None = None,
    source: Array = None,
) -> None:
    """Args: scale_over: ranks of a reduction, whose result is scaled; source: where the rows of
    the result are, if not in place."""
    if ready.handle is None:
        return  # nobody waits; the engine keeps the arrays

    def finish() -> Any:
        if source is not None and source is not result:
            arrays = ready.request.arrays
            arrays.copy(result, arrays.rows(source, 0, arrays.shape(result)[0]))
        if scale_over is not None:
            _postscale(ready, result, scale_over)
        return result

    ready.handle.begin(works, finish)


def _begin_part(
    ready: Ready,
    work: comm.Handle,
    memory: tuple[Array, Array | None],
    place: tuple[int, int],
    ranks: int,
) -> None:
    """Args: memory: of all, and of what the codec has lost; place: this one's first element, and
    the one behind its last."""
    if ready.handle is None:
        return
    request, arrays = ready.request, ready.request.arrays
    flat, residual = memory

    def finish() -> Any:
        target = request.output
        if target is None:
            target = arrays.empty(request.array, arrays.shape(request.array))
        arrays.unflatten(arrays.rows(flat, *place), [target])
        if residual is not None:
            arrays.unflatten(arrays.rows(residual, *place), [request.residual])
        _postscale(ready, target, ranks)
        return target

    ready.handle.begin((work,), finish)


def _postscale(ready: Ready, target: Array, ranks: int) -> None:
    arrays, terms = ready.request.arrays, ready.terms
    integral = terms.op == "average" and arrays.is_integral(target)
    if integral and terms.postscale == 1.0:
        arrays.divide(target, ranks)
        return
    factor = terms.postscale / ranks if integral else terms.postscale
    if factor != 1.0:
        arrays.copy(target, arrays.scaled(target, factor))
