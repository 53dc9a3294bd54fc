"""Collectives that return at once, and the functions that wait for them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from slipstream.horovod.common.exceptions import HorovodInternalError, RefusedError
from slipstream.horovod.common.process_sets import ProcessSet, global_process_set
from slipstream.horovod.common.util import num_rank_is_power_2
from slipstream.horovod.job import queue_of
from slipstream.horovod.reductions import Adasum, Average, Reduction
from slipstream.horovod.request import Request
from slipstream.horovod.torch.submit import (
    AsyncResult,
    forget_names,
    full_name,
    plain,
    rank_in,
    submit_many,
    submit_one,
)


def chosen_op(op: Reduction | None, average: bool | None) -> Reduction:
    """Return the chosen reduction; `average` is Horovod's older form of `op`.

    Raises:
        ValueError: both were given.
    """
    if average is None:
        return Average if op is None else Reduction(op)
    if op is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    warnings.warn(
        "Parameter `average` has been replaced with `op` and will be removed in v1.0",
        DeprecationWarning,
        stacklevel=3,
    )
    return Average if average else Reduction.SUM


def allreduce_request(
    tensor: torch.Tensor,
    name: str,
    op: Reduction,
    factors: tuple[float, float],
    *,
    in_place: bool,
    **further: Any,
) -> Request:
    """Return the request of an allreduce.

    Args:
        tensor: Tensor on the CPU.
        name: Name by which all ranks know the tensor.
        op: Reduction.
        factors: Factors before and after the reduction.
        in_place: Whether the tensor gets the result.
        further: Further fields of `Request`: codec, residual, priority.
    """
    memory = _reducible(tensor, op)
    return Request(
        kind="adasum" if op == Adasum else "allreduce",
        name=name,
        array=memory,
        output=memory if in_place else None,
        op="sum" if op == Adasum else op.engine_name,
        prescale=float(factors[0]),
        postscale=float(factors[1]),
        **further,
    )


def _reducible(tensor: torch.Tensor, op: Reduction) -> torch.Tensor:
    memory = plain(tensor)
    if memory.dtype == torch.bool and op == Average:
        raise ValueError(f"Tensor type {tensor.type()} is not supported by an average.")
    return memory


def _begin_allreduces(
    tensors: Sequence[torch.Tensor],
    kind: str,
    name: str | None,
    op: Reduction,
    factors: tuple[float, float],
    process_set: ProcessSet,
    *,
    in_place: bool,
) -> AsyncResult:
    """Submit tensors that are reduced together; their names begin with `kind`.

    Raises:
        NotImplementedError: Adasum cannot be done among these ranks.
    """
    if op == Adasum:
        _check_adasum(process_set)
    for each in tensors:
        _reducible(each, op)  # before names are numbered: a wrong call on one rank must not count
    named = full_name(kind, name, process_set)
    names = [named] if kind == "allreduce" else _numbered(named, tensors)
    requests = [
        allreduce_request(each, own, op, factors, in_place=in_place)
        for each, own in zip(tensors, names, strict=True)
    ]
    result = submit_many(requests, process_set)
    # The tensors that the user passed carry gradients, so they are returned.
    return AsyncResult([result], lambda _: tuple(tensors)) if in_place else result


def _check_adasum(process_set: ProcessSet) -> None:
    size = queue_of(process_set).group.size
    if process_set is not global_process_set:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    if not num_rank_is_power_2(size):
        raise NotImplementedError(
            f"Running Adasum with non-power of 2 ranks is not supported yet. There are {size}."
        )


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Reduction | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin an allreduce into a new tensor; up to 2(n-1) steps, 2 S (n-1)/n bytes.

    Args:
        tensor: Contiguous tensor on the CPU, of the same shape and type on all ranks under one
            name.
        average: Horovod's older form of `op`.
        name: Name of the tensor on all ranks (default: a number, in the order of the calls).
        op: Reduction: Average (default), Sum, Min, Max, Product or Adasum.
        prescale_factor, postscale_factor: Factors before and after the reduction; integers are
            multiplied in float64.
        process_set: Process set whose ranks take part (default: all ranks).

    Returns:
        A handle for poll() and synchronize().

    Raises:
        ValueError: the tensor is not supported, or one of the name is under way.
        NotImplementedError: Adasum with a process set, or ranks that are no power of 2.
    """
    reduction, factors = chosen_op(op, average), (prescale_factor, postscale_factor)
    return _only(
        _begin_allreduces(
            [tensor], "allreduce", name, reduction, factors, process_set, in_place=False
        )
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
    """Begin an allreduce in place; else as allreduce_async()."""
    reduction, factors = chosen_op(op, average), (prescale_factor, postscale_factor)
    return _only(
        _begin_allreduces(
            [tensor], "allreduce", name, reduction, factors, process_set, in_place=True
        )
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
    """Begin allreduces that are fused: ready together or not at all; else as allreduce_async()."""
    reduction, factors = chosen_op(op, average), (prescale_factor, postscale_factor)
    return _begin_allreduces(
        tensors, "grouped_allreduce", name, reduction, factors, process_set, in_place=False
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
    """Begin allreduces in place that are fused; else as grouped_allreduce_async()."""
    reduction, factors = chosen_op(op, average), (prescale_factor, postscale_factor)
    return _begin_allreduces(
        tensors, "grouped_allreduce", name, reduction, factors, process_set, in_place=True
    )


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> AsyncResult:
    """Begin to join the tensors of all ranks along the first dimension, in which they may differ.

    n-1 steps, S (n-1) bytes.
    """
    memory = _with_rows(tensor, "allgather")
    request = _gathering(memory, full_name("allgather", name, process_set))
    return submit_one(request, process_set)


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin allgathers that are ready together or not at all."""
    memories = [_with_rows(each, "allgather") for each in tensors]
    named = full_name("grouped_allgather", name, process_set)
    names = _numbered(named, tensors)
    requests = [_gathering(each, own) for each, own in zip(memories, names, strict=True)]
    return submit_many(requests, process_set)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin to send a tensor of one rank to all, into a new one; up to n-1 steps, S bytes.

    Args:
        tensor: Tensor of the same shape and type on all ranks.
        root_rank: Rank that sends, counted in the job even if a process set is passed.
        name: Name of the tensor on all ranks.
        process_set: Process set whose ranks take part (default: all ranks).
    """
    request = _broadcasting(tensor, None, root_rank, name, process_set)
    return submit_one(request, process_set)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin to replace a tensor on all ranks by that of one; else as broadcast_async()."""
    request = _broadcasting(tensor, tensor, root_rank, name, process_set)
    return AsyncResult([submit_one(request, process_set)], lambda _: tensor)


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> AsyncResult:
    """Begin to send some rows to each rank; one step, S (n-1)/n bytes.

    Args:
        tensor: Tensor that is cut along its first dimension.
        splits: Number of rows for each rank of the process set (default: equal parts). Rows beyond
            their sum are not sent.
        name: Name of the tensor on all ranks.
        process_set: Process set whose ranks take part (default: all ranks).

    Returns:
        A handle; synchronize() gives the rows and, as int32, how many came from each rank.

    Raises:
        ValueError: the splits are not whole numbers, one for each rank, that fit the tensor.
    """
    memory = _with_rows(tensor, "alltoall")
    rows = _splits(memory, splits, queue_of(process_set).group.size)
    request = Request(
        kind="all_to_all",
        name=full_name("alltoall", name, process_set),
        array=memory[: sum(rows)],
        splits=rows,
    )
    return submit_many([request], process_set, _rows_and_counts)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: Reduction = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> AsyncResult:
    """Begin a reduction of which each rank gets its rows; n-1 steps, S (n-1)/n bytes.

    Rows are divided evenly; where that leaves some, the first ranks have one more.
    """
    memory = _scatterable(tensor, op)
    named = full_name("reducescatter", name, process_set)
    factors = prescale_factor, postscale_factor
    return submit_one(_scattering(memory, named, op, factors), process_set)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: Reduction = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> AsyncResult:
    """Begin reductions as reducescatter_async() that are ready together or not at all."""
    memories = [_scatterable(each, op) for each in tensors]
    named = full_name("grouped_reducescatter", name, process_set)
    factors = prescale_factor, postscale_factor
    names = _numbered(named, tensors)
    requests = [
        _scattering(each, own, op, factors) for each, own in zip(memories, names, strict=True)
    ]
    return submit_many(requests, process_set)


def poll(handle: AsyncResult) -> bool:
    """Return whether synchronize() would return at once; does not block."""
    if not handle.done():
        return False
    with contextlib.suppress(HorovodInternalError):  # synchronize() raises it
        handle.wait()  # an output that was passed has the result from now on
    return True


def synchronize(handle: AsyncResult) -> Any:
    """Block until a collective is done, and return its output.

    Raises:
        HorovodInternalError: it failed.
    """
    return handle.wait()


def join(device: int = -1) -> int:
    """Say that this rank has no more data and block until all ranks have said so.

    Until then it counts as zeros in the allreduces of the others; other collectives fail.

    Args:
        device: Device on which Horovod would make the zeros; ignored here, as they are on the CPU.

    Returns:
        The rank that was the last.
    """
    last = queue_of(global_process_set).join()
    forget_names(global_process_set)  # who joined early has not counted what the others did
    return last


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Block until all ranks of a process set are here."""
    request = Request(
        kind="barrier",
        name=full_name("barrier", None, process_set),
        array=torch.zeros(0),
    )
    submit_one(request, process_set).wait()


def _numbered(name: str, tensors: Sequence[torch.Tensor]) -> list[str]:
    return [f"{name}_{place + 1}of{len(tensors)}" for place in range(len(tensors))]


def _only(result: AsyncResult) -> AsyncResult:
    """Return a handle whose output is the one tensor of a list."""
    return AsyncResult([result], lambda results: results[0][0])


def _gathering(memory: torch.Tensor, name: str) -> Request:
    return Request(kind="all_gather", name=name, array=memory)


def _with_rows(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """Return the tensor's memory; it is cut or joined along its first dimension."""
    if tensor.dim() == 0:
        raise RefusedError(
            f"{what} of a rank-zero tensor: it does not support scalar inputs; allowed: one"
            " dimension and more"
        )
    return plain(tensor)


def _broadcasting(
    tensor: torch.Tensor,
    output: torch.Tensor | None,
    root_rank: int,
    name: str | None,
    process_set: ProcessSet,
) -> Request:
    return Request(
        kind="broadcast",
        array=plain(tensor),
        output=None if output is None else plain(output),
        root=rank_in(process_set, root_rank),
        name=full_name("broadcast", name, process_set),  # last: a wrong call is not counted
    )


def _scatterable(tensor: torch.Tensor, op: Reduction) -> torch.Tensor:
    if op not in (Average, Reduction.SUM):
        raise RefusedError(f"Reducescatter currently only supports AVERAGE and SUM, not {op!r}.")
    return _with_rows(tensor, "reducescatter")


def _scattering(
    memory: torch.Tensor, name: str, op: Reduction, factors: tuple[float, float]
) -> Request:
    return Request(
        kind="reduce_scatter",
        name=name,
        array=memory,
        op=Reduction(op).engine_name,
        prescale=float(factors[0]),
        postscale=float(factors[1]),
    )


def _splits(
    tensor: torch.Tensor, splits: torch.Tensor | Sequence[int] | None, size: int
) -> list[int]:
    rows = tensor.shape[0]
    if splits is None:
        if rows % size:
            raise ValueError(
                "splits not provided, but first dimension of tensor is not an even multiple of the"
                f" number of workers. It is {rows}, there are {size}"
            )
        return [rows // size] * size
    whole = (torch.int32, torch.int64)
    given = splits if isinstance(splits, torch.Tensor) else _int32(splits)
    if given.dtype not in whole or given.dim() != 1:
        raise ValueError(
            "alltoall expects splits to contain 32-bit integer elements, in one dimension. They are"
            f" {tuple(given.shape)} of {given.dtype}"
        )
    if given.numel() not in (0, size):
        raise ValueError(
            "Number of entries in splits does not equal number of workers. They are"
            f" {given.numel()}, there are {size}"
        )
    numbers = [int(each) for each in given]
    if not numbers:
        return _splits(tensor, None, size)
    if min(numbers) < 0 or sum(numbers) > rows:
        raise ValueError(
            "Sum of splits entries is greater than the first dimension of tensor, or one is below"
            f" 0. They are {numbers}, of {rows} rows"
        )
    return numbers


def _int32(splits: Sequence[int]) -> torch.Tensor:
    return torch.tensor(list(splits), dtype=torch.int32)


def _rows_and_counts(results: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    rows, counts = results[0]
    return rows, torch.tensor(counts, dtype=torch.int32)
