"""Collectives that block until they are done, and that autograd can differentiate.

The functions return new tensors, unless their names have a trailing underscore. Functions with a
trailing underscore write into their arguments, and have no gradients. ops.py describes the
arguments and costs, which are the same in the asynchronous forms.
"""

# PyTorch declares no types for the methods of autograd functions.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportIncompatibleMethodOverride=false, reportMissingParameterType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from slipstream.horovod.collectives import position_in
from slipstream.horovod.common.process_sets import ProcessSet, global_process_set
from slipstream.horovod.gradients import own_rows, reducescatter_factor
from slipstream.horovod.job import queue_of
from slipstream.horovod.reductions import Average, Reduction, chosen_op
from slipstream.horovod.submission import AsyncResult
from slipstream.horovod.torch import ops
from slipstream.horovod.torch.compression import Compression, Compressor


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
        dense = [gradient.contiguous() for gradient in gradients]
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
        num_rows, process_set = ctx.passed
        return _own_part(gradient, num_rows, process_set), None, None


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, process_set: Any, *tensors: Any) -> Any:
        gathered = ops.grouped_allgather_async(tensors, name, process_set).wait()
        ctx.passed = [tensor.shape[0] for tensor in tensors], process_set
        return gathered

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        counts, process_set = ctx.passed
        parts = [
            _own_part(gradient, num_rows, process_set)
            for gradient, num_rows in zip(gradients, counts, strict=True)
        ]
        return None, None, *parts


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, root_rank: Any, name: Any, process_set: Any) -> Any:
        ctx.passed = root_rank, process_set
        return ops.broadcast_async(tensor, root_rank, name, process_set).wait()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        root_rank, process_set = ctx.passed
        averaged = allreduce(gradient.contiguous(), op=Average, process_set=process_set)
        is_root = process_set.rank() == position_in(process_set, root_rank)
        return (averaged if is_root else averaged * 0), None, None, None


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, splits: Any, name: Any, process_set: Any) -> Any:
        rows, counts = ops.alltoall_async(tensor, splits, name, process_set).wait()
        ctx.passed = counts, process_set
        ctx.mark_non_differentiable(counts)
        return rows, counts

    @staticmethod
    def backward(ctx: Any, gradient: Any, _counts: Any) -> Any:
        counts, process_set = ctx.passed
        returned, _ = ops.alltoall_async(gradient.contiguous(), counts, None, process_set).wait()
        return returned, None, None, None


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, name: Any, op: Any, factors: Any, process_set: Any) -> Any:
        ctx.passed = op, factors, process_set
        return ops.reducescatter_async(tensor, name, op, process_set, *factors).wait()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        op, factors, process_set = ctx.passed
        scaled = _scaled(gradient, op, factors, process_set)
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
        scaled = [_scaled(gradient, op, factors, process_set) for gradient in gradients]
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
    """Reduce a tensor over all ranks into a new tensor; the gradient is reduced in the same way."""
    op, factors = chosen_op(op, average), (prescale_factor, postscale_factor)
    compressed, ctx = compression.compress(tensor)
    reduced: Any = _Allreduce.apply(compressed, name, op, factors, process_set)
    return compression.decompress(reduced, ctx)


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
    op, factors = chosen_op(op, average), (prescale_factor, postscale_factor)
    return ops.allreduce_async_(tensor, None, name, op, *factors, process_set).wait()


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
    """Reduce several tensors over all ranks, fused, into new tensors."""
    op, factors = chosen_op(op, average), (prescale_factor, postscale_factor)
    compressed, contexts = _compressed(tensors, compression)
    reduced: Any = _GroupedAllreduce.apply(name, op, factors, process_set, *compressed)
    return [compression.decompress(t, ctx) for t, ctx in zip(reduced, contexts, strict=True)]


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> tuple[torch.Tensor, ...]:
    """Reduce several tensors over all ranks, fused, in place."""
    op, factors = chosen_op(op, average), (prescale_factor, postscale_factor)
    return ops.grouped_allreduce_async_(tensors, None, name, op, *factors, process_set).wait()


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str,
    op: Reduction,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin to sum or average sparse tensors; each rank gathers all indices and values.

    Each rank takes n-1 steps and sends S (n-1) bytes, where S is the size of the indices and
    values.

    Returns:
        A handle for poll() and synchronize(). A call of the handle waits for the result, as in
        Horovod.
    """
    indices = tensor._indices().transpose(0, 1).contiguous()
    parts = [
        ops.allgather_async(indices, f"{name}.indices", process_set),
        ops.allgather_async(tensor._values().contiguous(), f"{name}.values", process_set),
    ]

    def make(results: list[Any]) -> torch.Tensor:
        all_indices, values = results
        if op == Average:
            values = values / queue_of(process_set).group.size
        # The ranks have not compared the shapes of their tensors, so the indices are checked.
        columns = all_indices.transpose(0, 1)
        return torch.sparse_coo_tensor(columns, values, tensor.shape, check_invariants=True)

    return _CallableResult(parts, make)


class _CallableResult(AsyncResult):
    def __call__(self) -> torch.Tensor:
        return self.wait()


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Join the tensors of all ranks along their first dimension."""
    joined: Any = _Allgather.apply(tensor, name, process_set)
    return joined


def grouped_allgather(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> tuple[torch.Tensor, ...]:
    """Join, for each index i, the i-th tensors of all ranks along their first dimension."""
    joined: Any = _GroupedAllgather.apply(name, process_set, *tensors)
    return joined


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return a new tensor with the elements of the tensor of one rank."""
    received: Any = _Broadcast.apply(tensor, root_rank, name, process_set)
    return received


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Replace the elements of a tensor by the elements of the tensor of one rank."""
    return ops.broadcast_async_(tensor, root_rank, name, process_set).wait()


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send some rows to each rank, and return the received rows.

    Returns:
        The received rows, if no splits were passed. If splits were passed, the result is a pair:
        the received rows, and the number of rows from each rank.
    """
    rows_and_counts: Any = _Alltoall.apply(tensor, splits, name, process_set)
    return rows_and_counts[0] if splits is None else rows_and_counts


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: Reduction = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduce a tensor over all ranks, and return the rows of this rank."""
    factors = prescale_factor, postscale_factor
    compressed, ctx = compression.compress(tensor)
    reduced: Any = _Reducescatter.apply(compressed, name, op, factors, process_set)
    return compression.decompress(reduced, ctx)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: Reduction = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reduce several tensors over all ranks, and return this rank's rows of each tensor."""
    factors = prescale_factor, postscale_factor
    compressed, contexts = _compressed(tensors, compression)
    reduced: Any = _GroupedReducescatter.apply(name, op, factors, process_set, *compressed)
    return [compression.decompress(t, ctx) for t, ctx in zip(reduced, contexts, strict=True)]


def _compressed(
    tensors: Sequence[torch.Tensor], compression: type[Compressor]
) -> tuple[list[torch.Tensor], list[Any]]:
    """Return the compressed tensors, and the contexts with which decompress() restores them."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    return [tensor for tensor, _ in pairs], [ctx for _, ctx in pairs]


def _own_part(gradient: torch.Tensor, num_rows: int, process_set: ProcessSet) -> torch.Tensor:
    """Return the gradient of the rows that this rank passed to an allgather."""
    averaged = allreduce(gradient.contiguous(), op=Average, process_set=process_set)
    begin, end = own_rows(num_rows, process_set)
    return averaged[begin:end]


def _scaled(
    gradient: torch.Tensor, op: Reduction, factors: tuple[float, float], process_set: ProcessSet
) -> torch.Tensor:
    return (gradient * reducescatter_factor(op, factors, process_set)).contiguous()
