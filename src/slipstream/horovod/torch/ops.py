"""Horovod's asynchronous collectives for PyTorch, which return handles for synchronize().

The stated costs are those of one rank; n is the number of ranks, and S the size of a rank's tensor
in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from slipstream.horovod import collectives
from slipstream.horovod.common.process_sets import ProcessSet, global_process_set
from slipstream.horovod.reductions import Average, Reduction, chosen_op
from slipstream.horovod.submission import AsyncResult


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin an allreduce into a new tensor.

    Each rank takes up to 2(n-1) steps and sends 2 S (n-1)/n bytes.

    Args:
        tensor: Contiguous tensor on the CPU or a GPU, of the same shape and type on all ranks.
        average: Horovod's older form of `op`: True for Average, False for Sum.
        name: Name of the tensor on all ranks (default: tensors are numbered in the order of the
            calls).
        op: Reduction: Average (default), Sum, Min, Max, Product or Adasum.
        prescale_factor, postscale_factor: Factors by which elements are multiplied before and after
            the reduction (default 1); integers are multiplied in float64.
        process_set: Process set whose ranks take part (default: all ranks).

    Returns:
        A handle for poll() and synchronize().

    Raises:
        ValueError: The tensor is not supported, or its name is in use.
        NotImplementedError: Adasum was chosen with a process set, or the number of ranks is not a
            power of 2.
    """
    factors = prescale_factor, postscale_factor
    return collectives.allreduce(
        tensor, name, chosen_op(op, average), factors, process_set, in_place=False
    )


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin an allreduce in place; see allreduce_async() for the arguments."""
    factors = prescale_factor, postscale_factor
    return collectives.allreduce(
        tensor, name, chosen_op(op, average), factors, process_set, in_place=True
    )


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin fused allreduces that run together or not at all.

    allreduce_async() describes the arguments.
    """
    factors = prescale_factor, postscale_factor
    return collectives.grouped_allreduce(
        tensors, name, chosen_op(op, average), factors, process_set, in_place=False
    )


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin fused allreduces in place; for arguments, see grouped_allreduce_async()."""
    factors = prescale_factor, postscale_factor
    return collectives.grouped_allreduce(
        tensors, name, chosen_op(op, average), factors, process_set, in_place=True
    )


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> AsyncResult:
    """Begin to join the tensors of all ranks along the first dimension, whose size may differ.

    Each rank takes n-1 steps and sends S (n-1) bytes.
    """
    return collectives.allgather(tensor, name, process_set)


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin allgathers that run together or not at all."""
    return collectives.grouped_allgather(tensors, name, process_set)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin to copy one rank's tensor into new tensors on all ranks.

    Each rank takes up to n-1 steps and sends up to S bytes.

    Args:
        tensor: Tensor of the same shape and type on all ranks.
        root_rank: Rank of the sender in the job, even if a process set is passed.
        name: Name of the tensor on all ranks (default: tensors are numbered in the order of the
            calls).
        process_set: Process set whose ranks take part (default: all ranks).
    """
    return collectives.broadcast(tensor, root_rank, name, process_set, in_place=False)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin to copy the tensor of one rank into the tensors of all ranks; see broadcast_async()."""
    return collectives.broadcast(tensor, root_rank, name, process_set, in_place=True)


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin to send some rows to each rank, in one step in which a rank sends S (n-1)/n bytes.

    Args:
        tensor: Tensor that is cut along its first dimension.
        splits: Number of rows for each rank of the process set (default: equal parts). Rows beyond
            the sum of `splits` are not sent.
        name: Name of the tensor on all ranks (default: tensors are numbered in the order of the
            calls).
        process_set: Process set whose ranks take part (default: all ranks).

    Returns:
        A handle; synchronize() returns a pair: the received rows, and the number of rows from each
        rank as int32.

    Raises:
        ValueError: `splits` is not one whole number for each rank, or its sum exceeds the rows of
            the tensor. Without `splits`: the number of rows is not a multiple of n.
    """
    if isinstance(splits, torch.Tensor):
        splits = splits.cpu()  # the engine needs the numbers
    return collectives.alltoall(tensor, splits, name, process_set)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: Reduction = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> AsyncResult:
    """Begin to reduce tensors, and give each rank a part of the rows of the result.

    Each rank takes n-1 steps and sends S (n-1)/n bytes. Rows are divided evenly; if rows are left
    over, each of the first ranks gets one of them.
    """
    factors = prescale_factor, postscale_factor
    return collectives.reducescatter(tensor, name, op, factors, process_set)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: Reduction = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> AsyncResult:
    """Begin reducescatters that run together or not at all.

    reducescatter_async() describes the arguments.
    """
    factors = prescale_factor, postscale_factor
    return collectives.grouped_reducescatter(tensors, name, op, factors, process_set)


def join(device: int = -1) -> int:
    """Declare that this rank has no more data, and block until all ranks have declared the same.

    While this rank is blocked, it takes part with zeros in allreduces of other ranks; other
    collectives fail.

    Args:
        device: Number of the GPU on which this rank takes part in allreduces of CUDA tensors, if it
            has submitted no such tensor (default -1: the current GPU).

    Returns:
        The rank that joined last.
    """
    return collectives.join(device)
