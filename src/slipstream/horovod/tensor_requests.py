"""Requests for tensors of a user, after a check of the tensors.

The caller names the requests before it submits them.
"""

from __future__ import annotations

from typing import Any

from slipstream.comm.arrays import Array
from slipstream.horovod.arrays import Arrays
from slipstream.horovod.common.exceptions import RefusedError
from slipstream.horovod.common.process_sets import ProcessSet, global_process_set
from slipstream.horovod.common.util import num_rank_is_power_2
from slipstream.horovod.job import queue_of
from slipstream.horovod.reductions import Adasum, Average, Reduction
from slipstream.horovod.request import Request


def allreduce_request(
    tensor: Any,
    op: Reduction,
    factors: tuple[float, float],
    process_set: ProcessSet,
    *,
    in_place: bool,
    **further: Any,
) -> Request:
    """Return the request of an allreduce.

    Args:
        tensor: Tensor to reduce.
        op: Reduction.
        factors: Two numbers by which elements are multiplied: one before and one after the
            reduction.
        process_set: Process set whose ranks take part.
        in_place: Whether the result is written into the tensor.
        further: Further fields of `Request`: name, codec, residual, priority.

    Raises:
        ValueError: The tensor is not supported.
    """
    arrays = queue_of(process_set).arrays
    memory = arrays.memory(tensor)
    if op == Average and arrays.dtype(memory) == "bool":
        raise ValueError(
            "Tensor type bool is not supported by an average. Convert the tensor to numbers first."
        )
    return Request(
        kind="adasum" if op == Adasum else "allreduce",
        array=memory,
        output=memory if in_place else None,
        op="sum" if op == Adasum else op.engine_name,
        prescale=float(factors[0]),
        postscale=float(factors[1]),
        **further,
    )


def allgather_request(arrays: Arrays, tensor: Any) -> Request:
    """Return the request of an allgather.

    Raises:
        ValueError: The tensor is not supported.
    """
    return Request(kind="all_gather", array=with_rows(arrays, tensor, "allgather"))


def reducescatter_request(
    arrays: Arrays, tensor: Any, op: Reduction, factors: tuple[float, float]
) -> Request:
    """Return the request of a reducescatter.

    Raises:
        ValueError: The tensor or the reduction is not supported.
    """
    if op not in (Average, Reduction.SUM):
        raise RefusedError(f"Reducescatter currently only supports AVERAGE and SUM, not {op!r}.")
    return Request(
        kind="reduce_scatter",
        array=with_rows(arrays, tensor, "reducescatter"),
        op=Reduction(op).engine_name,
        prescale=float(factors[0]),
        postscale=float(factors[1]),
    )


def with_rows(arrays: Arrays, tensor: Any, collective: str) -> Array:
    """Check that a tensor has at least one dimension, and return the memory of the tensor.

    Args:
        arrays: Adapter of the framework.
        tensor: Tensor of the user.
        collective: Name of the operation, for the error message.

    Raises:
        ValueError: The tensor is not supported, or has no dimension.
    """
    memory = arrays.memory(tensor)
    if not arrays.shape(memory):
        raise RefusedError(
            f"{collective} of a rank-zero tensor: it does not support scalar inputs; allowed: one"
            " dimension and more"
        )
    return memory


def check_adasum(op: Reduction, process_set: ProcessSet) -> None:
    """Check that a process set supports a reduction; only Adasum has requirements.

    Raises:
        NotImplementedError: Adasum does not support the process set or the number of ranks.
    """
    if op != Adasum:
        return
    size = queue_of(process_set).group.size
    if process_set is not global_process_set:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    if not num_rank_is_power_2(size):
        raise NotImplementedError(
            f"Running Adasum with non-power of 2 ranks is not supported yet. There are {size}."
        )
