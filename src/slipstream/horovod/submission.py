"""Submission of requests, and the handles that Horovod's asynchronous functions return."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from slipstream.horovod.common.exceptions import HorovodInternalError
from slipstream.horovod.common.process_sets import ProcessSet
from slipstream.horovod.job import queue_of
from slipstream.horovod.request import Request, TensorHandle


class AsyncResult:
    """Result of an asynchronous collective, for poll() or synchronize().

    Args:
        handles: Handles of the collective's tensors. If the collective consists of several
            collectives, their results.
        make: Function that makes the output from the list of the handles' results, at each call of
            wait().
    """

    def __init__(
        self, handles: Sequence[TensorHandle | AsyncResult], make: Callable[[list[Any]], Any]
    ) -> None:
        self._handles, self._make = handles, make

    def done(self) -> bool:
        """Return whether wait() would return without blocking; does not block."""
        return all(handle.done() for handle in self._handles)

    def settle(self) -> None:
        """Block until the collective has an output or an error."""
        for handle in self._handles:
            handle.settle()

    def wait(self) -> Any:
        """Block until the collective has an output, and return it.

        Each call makes the current stream of a device wait for the output: a later call may come
        from another stream than the first.

        Raises:
            HorovodInternalError: The collective failed.
        """
        self.settle()  # waits for all handles, so that all names become free even if one fails
        return self._make([handle.wait() for handle in self._handles])


def submit(
    requests: Sequence[Request],
    process_set: ProcessSet,
    make: Callable[[list[Any]], Any] = tuple,
) -> AsyncResult:
    """Submit requests without blocking; several of them run together or not at all.

    Args:
        requests: Requests, which have their names already.
        process_set: Process set whose ranks take part.
        make: Function that makes the output from the list of results (default: the tuple of
            results).

    Raises:
        ValueError: A name is in use, or this rank is not in the process set.
        HorovodInternalError: The process set has failed.
    """
    handles = queue_of(process_set).submit(requests, together=len(requests) > 1)
    return AsyncResult(handles, make)


def poll(handle: AsyncResult) -> bool:
    """Return whether synchronize() would return without blocking; does not block."""
    if not handle.done():
        return False
    with contextlib.suppress(HorovodInternalError):  # synchronize() raises the error
        handle.wait()  # writes the result into the tensor of an in-place operation
    return True


def synchronize(handle: AsyncResult) -> Any:
    """Block until a collective is done, and return its output.

    Raises:
        HorovodInternalError: The collective failed.
    """
    return handle.wait()
