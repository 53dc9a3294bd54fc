"""PyTorch's work: an object with which a caller waits for an operation or gets its future."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed.distributed_c10d import Work

from slipstream.errors import UsageError
from slipstream.torch.callbacks import Callbacks, OrderedFuture
from slipstream.torch.collectives import Submission
from slipstream.torch.completions import Completions
from slipstream.torch.dynamo import keep_out
from slipstream.torch.profiler import ProfilerRange
from slipstream.torch.tensors import copy_out

_NO_LIMIT = timedelta(0)

# Guards steps that happen once per operation: making its future, calling its callbacks, and copying
# its results.
_once = threading.Lock()


@keep_out
class _Future(OrderedFuture):
    """Future of an operation. A callback of another operation may wait for this future."""

    def __init__(self, work: SlipstreamWork, callbacks: Callbacks | None) -> None:
        super().__init__(callbacks)
        self.pending: SlipstreamWork | None = work  # None once complete

    def wait(self) -> Any:
        """Block until the operation is complete, and return the output tensors."""
        work = self.pending
        if work is not None:
            work.finish_if_called_back()
        del work  # the traceback of an error refers to this frame, and would keep the tensors alive
        return super().wait()


@keep_out
class _FinishedWork(Work):
    """The work that is returned for every operation that is complete when its call returns."""

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Return True."""
        return True

    def is_completed(self) -> bool:
        """Return True."""
        return True

    def is_success(self) -> bool:
        """Return True, because an operation that fails before its call returns raises an error."""
        return True

    def exception(self) -> None:
        """Return None."""

    def synchronize(self) -> None:
        """Do nothing."""

    def result(self) -> Sequence[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Raise UsageError, because all operations share this object, so it has no results."""
        raise _no_result()

    def get_future(self) -> torch.futures.Future[Any]:
        """Raise UsageError, as `result` does."""
        raise _no_result()


def _no_result() -> UsageError:
    return UsageError(
        "the work of a collective that was not asynchronous has no result; read the output tensors,"
        " or set asyncOp in the options"
    )


FINISHED = _FinishedWork()


@keep_out
class SlipstreamWork(Work):
    """Work of an operation, or of several operations that were coalesced into one.

    Args:
        submission: Operations that were submitted to the engine.
        in_flight: Works of the group whose completion no caller has seen yet. Works in `in_flight`,
            and their buffers, stay alive as long as the engine may use them.
        completions: Thread that completes futures.
        ordered: Thread that runs the callbacks of the work's future in program order. `ordered` is
            None for point-to-point messages, because messages may have to wait for one another.
    """

    __slots__ = (
        "_callbacks",
        "_completions",
        "_copies",
        "_future",
        "_handles",
        "_in_flight",
        "_ordered",
        "_range",
        "_task",
    )

    def __init__(
        self,
        submission: Submission,
        in_flight: dict[Any, None],
        completions: Completions,
        ordered: Callbacks | None,
    ) -> None:
        super().__init__()
        self._task = submission
        self._handles = submission.handles
        self._copies = submission.copies
        self._in_flight = in_flight
        self._completions = completions
        self._ordered = ordered
        self._future: _Future | None = None
        self._range: ProfilerRange | None = None
        # None once the callbacks were called.
        self._callbacks: tuple[Callable[[], None], ...] | None = ()
        for oldest in in_flight:
            oldest.settle_if_done()
            break
        in_flight[self] = None

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Block, without the GIL, until the operation is complete.

        Args:
            timeout: Longest time to wait; 0 (default) means the time limit of the operation.

        Returns:
            True.

        Raises:
            PeerError: A peer is gone, or an operation took longer than its time limit.
        """
        seconds = timeout.total_seconds()
        try:
            for handle in self._handles:
                handle.wait(seconds)
        except Exception:
            self._forget_if_done()
            raise
        self._settle()
        if self._range is not None:
            self.finish_if_called_back()
            self._range.wait()
        return True

    def is_completed(self) -> bool:
        """Return whether the operation is complete or has failed; does not block."""
        if not all(handle.done() for handle in self._handles):
            return False
        if self.exception() is None:
            self._settle()
        return True

    def settle_if_done(self) -> None:
        """Copy out the results of an operation if it is done; does not block.

        This call frees the buffers of an operation even if its caller never waits for it.
        """
        with contextlib.suppress(Exception):  # wait() raises the error if somebody waits
            self.is_completed()
        self._forget_if_done()

    def is_success(self) -> bool:
        """Return whether the operation is complete and has not failed."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Return the error of the operation, or None if it has not failed so far."""
        try:
            for handle in self._handles:
                if handle.done():
                    handle.wait(0.0)
        except Exception as error:  # noqa: BLE001  returned, as the caller asked
            # The traceback is dropped, because its frames refer to this operation, and a failed
            # future keeps the error.
            return error.with_traceback(None)
        return None

    def result(self) -> Sequence[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the output tensors."""
        return self._task.result

    def synchronize(self) -> None:
        """Block like `wait`, because a CPU has no stream that could wait in its place."""
        self.wait()

    def source_rank(self) -> int:
        """Return the sender's rank in the group, once a receive from any rank is complete."""
        return self._handles[0].source()

    def _source_rank(self) -> int:
        return self.source_rank()

    def get_future(self) -> torch.futures.Future[Any]:
        """Return the future of the output tensors; the first call creates the future.

        In a callback of another future, this call blocks until the operation is done, because the
        callback may wait for a future that `then` makes from the returned future.
        """
        with _once:
            is_new = self._future is None
            future = self._future = self._future or _Future(self, self._ordered)
        if is_new and all(handle.done() for handle in self._handles):
            self._complete_future()
        elif is_new:
            self._when_done(self._complete_future)
        self.finish_if_called_back()
        return future

    def finish_if_called_back(self) -> None:
        """If the caller is a callback of another operation, block until this operation is done.

        In such a callback, the thread that calls callbacks is busy, so this method calls the
        callbacks of this operation.
        """
        if not self._completions.is_here():
            return
        for handle in self._handles:
            with contextlib.suppress(Exception):  # a callback passes the error on
                handle.wait()
        self._call_back()

    def trace(self, name: str, inputs: Sequence[torch.Tensor]) -> None:
        """Show the operation in PyTorch's profiler, from now until it is complete."""
        self._range = ProfilerRange(name, inputs)
        self._when_done(self._range.end)

    def _when_done(self, callback: Callable[[], None]) -> None:
        """Call a callback when the operation is done; only the first call needs `Completions`."""
        with _once:
            earlier = self._callbacks
            if earlier is not None:
                self._callbacks = (*earlier, callback)
        if earlier is None:
            callback()
        elif not earlier:
            self._completions.when_done(self._handles, self._call_back)

    def _call_back(self) -> None:
        with _once:
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()

    def _complete_future(self) -> None:
        future = self._future
        assert future is not None
        future.pending = None
        error = self.exception()
        if error is not None:
            self._forget_if_done()
            future.set_exception(error)
            return
        try:
            self._settle()
        except Exception as copy_error:  # noqa: BLE001  the future passes it on
            future.set_exception(copy_error)
        else:
            future.set_result(self._task.result)

    def _settle(self) -> None:
        """Copy the results to the caller's tensors and release the buffers; do so only once."""
        if self._copies:
            with _once:
                copy_out(self._copies)
                self._copies = ()
        self._in_flight.pop(self, None)

    def _forget_if_done(self) -> None:
        if all(handle.done() for handle in self._handles):
            self._in_flight.pop(self, None)
