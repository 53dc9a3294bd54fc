"""Collectives that block, with gradients through them.

They return new tensors or, with a trailing underscore, write into those that were passed. What each
costs, and its arguments, stand with its asynchronous form in ops.py.
"""

# Functions of autograd have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportIncompatibleMethodOverride=false, reportMissingParameterType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from slipstream.horovod.common.process_sets import ProcessSet, global_process_set
from slipstream.horovod.reductions import Average, Reduction
from slipstream.horovod.torch import ops
from slipstream.horovod.torch.compression import Compression, Compressor

NO_FACTORS = (1.0, 1.0)


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, name: Any, op: Any, factors: Any, process_set: Any) -> Any:
        ctx.passed = op, factors, process_set
        return ops.allreduce_async(tensor, None, name, op, *factors, process_set=process_set).wait()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        op, factors, process_set = ctx.passed
        summed = _Allreduce.apply(gradient.contiguous(), None, op, factors, process_set)
        return summed, None, None, None, None


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, op: Any, factors: Any, process_set: Any, *tensors: Any) -> Any:
        ctx.passed = op, factors, process_set
        handle = ops.grouped_allreduce_async(
            tensors, None, name, op, *factors, process_set=process_set
        )
        return handle.wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        op, factors, process_set = ctx.passed
        dense = [each.contiguous() for each in gradients]
        return (
            None,
            None,
            None,
            None,
            *_GroupedAllreduce.apply(None, op, factors, process_set, *dense),
        )


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, name: Any, process_set: Any) -> Any:
        gathered = ops.allgather_async(tensor, name, process_set).wait()
        ctx.passed = tensor.shape[0], process_set
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        rows, process_set = ctx.passed
        return _own_rows(gradient, rows, process_set), None, None


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, process_set: Any, *tensors: Any) -> Any:
        gathered = ops.grouped_allgather_async(tensors, name, process_set).wait()
        ctx.passed = [each.shape[0] for each in tensors], process_set
        return gathered

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        rows, process_set = ctx.passed
        pairs = zip(gradients, rows, strict=True)
        return None, None, *(_own_rows(each, count, process_set) for each, count in pairs)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, root_rank: Any, name: Any, process_set: Any) -> Any:
        ctx.passed = root_rank, process_set
        return ops.broadcast_async(tensor, root_rank, name, process_set).wait()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        root_rank, process_set = ctx.passed
        averaged = allreduce(gradient.contiguous(), op=Average, process_set=process_set)
        is_root = process_set.rank() == ops.rank_in(process_set, root_rank)
        return (averaged if is_root else averaged * 0), None, None, None


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, splits: Any, name: Any, process_set: Any) -> Any:
        rows, counts = ops.alltoall_async(tensor, splits, name, process_set).wait()
        ctx.passed = counts, process_set
        ctx.mark_non_differentiable(counts)
        return rows, counts

    @staticmethod
    def backward(ctx: Any, gradient: Any, _: Any) -> Any:
        counts, process_set = ctx.passed
        back, _counts = ops.alltoall_async(gradient.contiguous(), counts, None, process_set).wait()
        return back, None, None, None


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, name: Any, op: Any, factors: Any, process_set: Any) -> Any:
        ctx.passed = op, factors, process_set
        return ops.reducescatter_async(tensor, name, op, process_set, *factors).wait()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        op, factors, process_set = ctx.passed
        scaled = _as_of_a_sum(gradient, op, factors, process_set)
        gathered = ops.allgather_async(scaled, None, process_set).wait()
        return gathered, None, None, None, None


class _GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, op: Any, factors: Any, process_set: Any, *tensors: Any) -> Any:
        ctx.passed = op, factors, process_set
        handle = ops.grouped_reducescatter_async(tensors, name, op, process_set, *factors)
        return handle.wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        op, factors, process_set = ctx.passed
        scaled = [_as_of_a_sum(each, op, factors, process_set) for each in gradients]
        gathered = ops.grouped_allgather_async(scaled, None, process_set).wait()
        return None, None, None, None, *gathered


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce a tensor over all ranks into a new one; gradients are reduced likewise."""
    wanted = ops.chosen_op(op, average)
    factors = prescale_factor, postscale_factor
    sent, ctx = compression.compress(tensor)
    summed: Any = _Allreduce.apply(sent, name, wanted, factors, process_set)
    return compression.decompress(summed, ctx)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce a tensor over all ranks in place."""
    wanted = ops.chosen_op(op, average)
    factors = prescale_factor, postscale_factor
    return ops.allreduce_async_(tensor, None, name, wanted, *factors, process_set).wait()


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduce several tensors over all ranks, as one, into new ones."""
    wanted = ops.chosen_op(op, average)
    factors = prescale_factor, postscale_factor
    pairs = [compression.compress(each) for each in tensors]
    sent = [tensor for tensor, _ in pairs]
    summed: Any = _GroupedAllreduce.apply(name, wanted, factors, process_set, *sent)
    contexts = [ctx for _, ctx in pairs]
    return [compression.decompress(t, ctx) for t, ctx in zip(summed, contexts, strict=True)]


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> tuple[torch.Tensor, ...]:
    """Reduce several tensors over all ranks, as one, in place."""
    wanted = ops.chosen_op(op, average)
    factors = prescale_factor, postscale_factor
    return ops.grouped_allreduce_async_(tensors, None, name, wanted, *factors, process_set).wait()


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str,
    op: Reduction,
    process_set: ProcessSet = global_process_set,
) -> ops.AsyncResult:
    """Begin to sum or average sparse tensors: each rank gets the rows of all.

    n-1 steps, S (n-1) bytes of what is stored of the tensor.

    Returns:
        A handle for poll() and synchronize(); it may also be called, as Horovod's.
    """
    indices = tensor._indices().transpose(0, 1).contiguous()
    parts = [
        ops.allgather_async(indices, f"{name}.indices", process_set),
        ops.allgather_async(tensor._values().contiguous(), f"{name}.values", process_set),
    ]

    def make(results: list[Any]) -> torch.Tensor:
        all_indices, values = results
        if op == Average:
            values = values / ops.queue_of(process_set).group.size
        # Nobody has looked whether all ranks passed the same shape.
        places = all_indices.transpose(0, 1)
        return torch.sparse_coo_tensor(places, values, tensor.shape, check_invariants=True)

    return _Callable(parts, make)


class _Callable(ops.AsyncResult):
    def __call__(self) -> torch.Tensor:
        return self.wait()


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Join the tensors of all ranks along the first dimension."""
    joined: Any = _Allgather.apply(tensor, name, process_set)
    return joined


def grouped_allgather(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> tuple[torch.Tensor, ...]:
    """Join several tensors, each with those of all ranks."""
    joined: Any = _GroupedAllgather.apply(name, process_set, *tensors)
    return joined


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return a new tensor with what one rank has."""
    sent: Any = _Broadcast.apply(tensor, root_rank, name, process_set)
    return sent


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Replace a tensor by what one rank has."""
    return ops.broadcast_async_(tensor, root_rank, name, process_set).wait()


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send some rows to each rank, and return those that came.

    Returns:
        The rows and, where splits were passed, how many came from each rank.
    """
    both: Any = _Alltoall.apply(tensor, splits, name, process_set)
    return both[0] if splits is None else both


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: Reduction = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduce over all ranks, and return this rank's rows."""
    sent, ctx = compression.compress(tensor)
    factors = prescale_factor, postscale_factor
    own: Any = _Reducescatter.apply(sent, name, op, factors, process_set)
    return compression.decompress(own, ctx)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: Reduction = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reduce several tensors, and return this rank's rows of each."""
    pairs = [compression.compress(each) for each in tensors]
    sent = [tensor for tensor, _ in pairs]
    factors = prescale_factor, postscale_factor
    own: Any = _GroupedReducescatter.apply(name, op, factors, process_set, *sent)
    contexts = [ctx for _, ctx in pairs]
    return [compression.decompress(t, ctx) for t, ctx in zip(own, contexts, strict=True)]


def _own_rows(gradient: torch.Tensor, rows: int, process_set: ProcessSet) -> torch.Tensor:
    """Return this rank's part of the averaged gradient of what was gathered."""
    averaged = allreduce(gradient.contiguous(), op=Average, process_set=process_set)
    counts = allgather(torch.tensor([rows]), process_set=process_set)
    begin = int(counts[: process_set.rank()].sum())
    return averaged[begin : begin + rows]


def _as_of_a_sum(
    gradient: torch.Tensor, op: Reduction, factors: tuple[float, float], process_set: ProcessSet
) -> torch.Tensor:
    size = ops.queue_of(process_set).group.size
    factor = factors[0] * factors[1] * (1 if op == Average else size)
    return (gradient * factor).contiguous()
