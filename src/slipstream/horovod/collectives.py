"""Asynchronous collectives for the tensors of any framework: checks, requests and names.

The functions of a framework's module (such as `horovod.torch.ops`) have Horovod's signatures and
call this module's functions. The framework's adapter does all work on arrays. The stated costs are
those of one rank; n is the number of ranks, and S the size of a rank's tensor in bytes.

A tensor without a name gets the next number, which must be the same on all ranks. So every function
checks its arguments first: a call that fails on one rank only does not use up a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from slipstream.comm.arrays import Array
from slipstream.horovod.arrays import Arrays
from slipstream.horovod.common.process_sets import ProcessSet, global_process_set
from slipstream.horovod.job import job, queue_of
from slipstream.horovod.names import forget_names, full_name
from slipstream.horovod.reductions import Reduction
from slipstream.horovod.request import Request
from slipstream.horovod.splits import split_rows
from slipstream.horovod.submission import AsyncResult, submit
from slipstream.horovod.tensor_requests import (
    allgather_request,
    allreduce_request,
    check_adasum,
    reducescatter_request,
    with_rows,
)


def allreduce(
    tensor: Any,
    name: str | None,
    op: Reduction,
    factors: tuple[float, float],
    process_set: ProcessSet,
    *,
    in_place: bool,
) -> AsyncResult:
    """Begin an allreduce; each rank takes up to 2(n-1) steps and sends 2 S (n-1)/n bytes.

    Args:
        tensor: Tensor of the same shape and type on all ranks.
        name: Name of the tensor, the same on all ranks; with None, tensors are numbered in the
            order of the calls.
        op: Reduction.
        factors: Two numbers by which elements are multiplied: one before and one after the
            reduction. Integers are multiplied in float64.
        process_set: Process set whose ranks take part.
        in_place: Whether `tensor` receives the result and is the output; otherwise, the output is a
            new tensor.

    Raises:
        ValueError: The tensor is not supported, or its name is in use.
        NotImplementedError: Adasum does not support the process set or the number of ranks.
    """
    check_adasum(op, process_set)
    request = allreduce_request(tensor, op, factors, process_set, in_place=in_place)
    request.name = full_name("allreduce", name, process_set)
    return submit([request], process_set, lambda results: tensor if in_place else results[0])


def grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None,
    op: Reduction,
    factors: tuple[float, float],
    process_set: ProcessSet,
    *,
    in_place: bool,
) -> AsyncResult:
    """Begin fused allreduces that run together or not at all; for arguments, see allreduce()."""
    check_adasum(op, process_set)
    requests = [
        allreduce_request(tensor, op, factors, process_set, in_place=in_place) for tensor in tensors
    ]
    _name_group(requests, "grouped_allreduce", name, process_set)
    return submit(requests, process_set, lambda results: tuple(tensors if in_place else results))


def allgather(tensor: Any, name: str | None, process_set: ProcessSet) -> AsyncResult:
    """Begin to join the tensors of all ranks along the first dimension, whose size may differ.

    Each rank takes n-1 steps and sends S (n-1) bytes.
    """
    request = allgather_request(queue_of(process_set).arrays, tensor)
    request.name = full_name("allgather", name, process_set)
    return submit([request], process_set, _first)


def grouped_allgather(
    tensors: Sequence[Any], name: str | None, process_set: ProcessSet
) -> AsyncResult:
    """Begin allgathers that run together or not at all."""
    arrays = queue_of(process_set).arrays
    requests = [allgather_request(arrays, tensor) for tensor in tensors]
    _name_group(requests, "grouped_allgather", name, process_set)
    return submit(requests, process_set)


def broadcast(
    tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet, *, in_place: bool
) -> AsyncResult:
    """Begin to send one rank's tensor to all ranks; a rank takes up to n-1 steps and sends S bytes.

    Args:
        tensor: Tensor of the same shape and type on all ranks.
        root_rank: Rank of the sender in the job, even if a process set is passed.
        name: Name of the tensor, the same on all ranks; with None, tensors are numbered in the
            order of the calls.
        process_set: Process set whose ranks take part.
        in_place: Whether `tensor` receives the result and is the output; otherwise, the output is a
            new tensor.

    Raises:
        ValueError: The tensor is not supported, its name is in use, or the sender is not in the
            process set.
    """
    memory = queue_of(process_set).arrays.memory(tensor)
    request = Request(
        kind="broadcast",
        array=memory,
        output=memory if in_place else None,
        root=position_in(process_set, root_rank),
    )
    request.name = full_name("broadcast", name, process_set)
    return submit([request], process_set, lambda results: tensor if in_place else results[0])


def alltoall(
    tensor: Any, splits: Any | Sequence[int] | None, name: str | None, process_set: ProcessSet
) -> AsyncResult:
    """Begin to send some rows to each rank, in one step in which a rank sends S (n-1)/n bytes.

    Args:
        tensor: Tensor that is cut along its first dimension.
        splits: Number of rows for each rank of the process set; None for equal parts. Rows beyond
            the sum of `splits` are not sent.
        name: Name of the tensor, the same on all ranks; with None, tensors are numbered in the
            order of the calls.
        process_set: Process set whose ranks take part.

    Returns:
        A handle whose output is a pair: the received rows, and the number of rows from each rank as
        int32.

    Raises:
        ValueError: The tensor is not supported, its name is in use, or the splits do not fit the
            tensor (see `split_rows`).
    """
    queue = queue_of(process_set)
    arrays = queue.arrays
    memory = with_rows(arrays, tensor, "alltoall")
    rows = split_rows(splits, arrays.shape(memory)[0], queue.group.size)
    request = Request(
        kind="all_to_all",
        array=arrays.rows(memory, 0, sum(rows)),
        splits=rows,
        name=full_name("alltoall", name, process_set),
    )
    return submit([request], process_set, partial(_rows_and_counts, arrays))


def reducescatter(
    tensor: Any,
    name: str | None,
    op: Reduction,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> AsyncResult:
    """Begin to reduce tensors, and give each rank a part of the rows of the result.

    Each rank takes n-1 steps and sends S (n-1)/n bytes. Rows are divided evenly; if rows are left
    over, each of the first ranks gets one of them.

    Raises:
        ValueError: The tensor or the reduction is not supported, or the name is in use.
    """
    request = reducescatter_request(queue_of(process_set).arrays, tensor, op, factors)
    request.name = full_name("reducescatter", name, process_set)
    return submit([request], process_set, _first)


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None,
    op: Reduction,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> AsyncResult:
    """Begin reducescatters that run together or not at all; for arguments, see reducescatter()."""
    arrays = queue_of(process_set).arrays
    requests = [reducescatter_request(arrays, tensor, op, factors) for tensor in tensors]
    _name_group(requests, "grouped_reducescatter", name, process_set)
    return submit(requests, process_set)


def join(device: int = -1) -> int:
    """Declare that this rank has no more data, and block until all ranks have declared the same.

    While this rank is blocked, it takes part with zeros in allreduces of other ranks; other
    collectives fail.

    Args:
        device: Number of the device for the zeros, if this rank has submitted no tensor of a
            device; -1 (the default) means the current device.

    Returns:
        The rank that joined last.
    """
    queue = queue_of(global_process_set)
    if queue.arrays.devices is not None:
        queue.arrays.devices.expect(device)
    last = queue.join()
    forget_names(global_process_set)  # a rank that joined early has numbered fewer tensors
    return last


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Block until all ranks of a process set have called barrier()."""
    arrays = queue_of(process_set).arrays
    name = full_name("barrier", None, process_set)
    request = Request(kind="barrier", array=arrays.zeros("float32", (0,)), name=name)
    submit([request], process_set).wait()


def position_in(process_set: ProcessSet, rank: int) -> int:
    """Return the position of a rank of the job in a process set.

    Raises:
        ValueError: The rank is not in the process set.
    """
    ranks = process_set.ranks if process_set.process_set_id else list(range(job().world.size))
    if rank not in ranks:
        raise ValueError(
            f"broadcast received invalid root rank {rank} for provided process set; allowed:"
            f" {ranks}"
        )
    return ranks.index(rank)


def _name_group(
    requests: Sequence[Request], kind: str, name: str | None, process_set: ProcessSet
) -> None:
    group_name = full_name(kind, name, process_set)
    for number, request in enumerate(requests, 1):
        request.name = f"{group_name}_{number}of{len(requests)}"


def _first(results: list[Any]) -> Any:
    return results[0]


def _rows_and_counts(arrays: Arrays, results: list[Any]) -> tuple[Array, Array]:
    rows, counts = results[0]
    return rows, arrays.from_numpy(np.array(counts, dtype=np.int32))
