"""Submission of PyTorch's tensors as requests, and the results that users wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from slipstream.horovod.common.exceptions import RefusedError
from slipstream.horovod.common.process_sets import ProcessSet
from slipstream.horovod.job import job, queue_of
from slipstream.horovod.request import Request, TensorHandle
from slipstream.horovod.torch.arrays import TorchArrays
from slipstream.torch.tensors import with_memory

ARRAYS = TorchArrays()

_SUPPORTED = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
)

OPTIMIZER = "optimizer"  # kind under which parameters without names are numbered

_unnamed: Counter[tuple[str, int | None]] = Counter()


class AsyncResult:
    """Result of an asynchronous collective, for poll() or synchronize().

    Args:
        handles: Handles of one tensor or several.
        make: Function that makes the output from their results.
    """

    def __init__(
        self, handles: Sequence[TensorHandle | AsyncResult], make: Callable[[list[Any]], Any]
    ) -> None:
        self._handles, self._make = handles, make
        self._result: Any = None
        self._is_made = False

    def done(self) -> bool:
        """Return whether wait() would return at once; does not block."""
        return all(each.done() for each in self._handles)

    def settle(self) -> None:
        """Block until there is an output or an error."""
        for each in self._handles:
            each.settle()

    def wait(self) -> Any:
        """Block until the output is there, and return it.

        Raises:
            HorovodInternalError: the collective failed.
        """
        if not self._is_made:
            for each in self._handles:
                each.settle()  # so that all names are free again where one fails
            self._result = self._make([each.wait() for each in self._handles])
            self._is_made = True
        return self._result


def forget_names(process_set: ProcessSet | None = None) -> None:
    """Count collectives without names from the begin, as all ranks do at the same time.

    Args:
        process_set: the set whose collectives are counted anew; those of its optimizers, which may
            live on, are not. Default None: all sets, and optimizers too.
    """
    if process_set is None:
        _unnamed.clear()
        return
    for kind, number in list(_unnamed):
        if number == process_set.process_set_id and kind != OPTIMIZER:
            del _unnamed[kind, number]


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's memory without its gradients.

    Raises:
        ValueError: its type, device or layout is none that can be sent.
        UnsupportedError: it has no memory of its own, as a DTensor.
    """
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise RefusedError(
            f"Tensor type {tensor.type()} is not supported. It is on {tensor.device} with layout"
            f" {tensor.layout}; allowed: dense tensors on the CPU"
        )
    if tensor.dtype not in _SUPPORTED:
        allowed = ", ".join(str(each).removeprefix("torch.") for each in _SUPPORTED)
        raise ValueError(f"Tensor type {tensor.type()} is not supported. Allowed: {allowed}")
    if not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous. Call .contiguous() before.")
    return with_memory(tensor).detach()


def full_name(kind: str, name: str | None, process_set: ProcessSet) -> str:
    """Return the name by which all ranks know a tensor; those without one are counted."""
    if name is not None:
        return f"{kind}.{name}"
    counted = kind, process_set.process_set_id
    _unnamed[counted] += 1
    return f"{kind}.noname.{_unnamed[counted]}"


def submit_one(request: Request, process_set: ProcessSet) -> AsyncResult:
    """Submit a tensor without blocking.

    Raises:
        ValueError: the name is in use, or the process set is not usable here.
        HorovodInternalError: the process set has failed.
    """
    return submit_many([request], process_set, lambda results: results[0])


def submit_many(
    requests: Sequence[Request],
    process_set: ProcessSet,
    make: Callable[[list[Any]], Any] = tuple,
) -> AsyncResult:
    """Submit, without blocking, tensors that are ready together or not at all.

    Raises:
        As `submit_one`.
    """
    handles = queue_of(process_set).submit(requests, together=len(requests) > 1)
    return AsyncResult(handles, make)


def rank_in(process_set: ProcessSet, root_rank: int) -> int:
    """Return the position of a rank of the job in a process set.

    Raises:
        ValueError: it is not in it.
    """
    ranks = process_set.ranks if process_set.process_set_id else list(range(job().world.size))
    if root_rank not in ranks:
        raise ValueError(
            f"broadcast received invalid root rank {root_rank} for provided process set; allowed:"
            f" {ranks}"
        )
    return ranks.index(root_rank)
